"""A frame around every small file, so that damage shows.

     0 "PSTK" 4 │ 4 kind 2 │ 6 version 2 │ 8 payload length 4 │ 12 CRC-32C 4 │ 16 payload …

Little endian. The CRC covers kind, version, length and payload.
"""

import enum
import struct

from fastcrc import crc32

from penstock.storage.disk import Buffer, Disk, NoSuchFile
from penstock.storage.log.errors import CorruptFile
from penstock.storage.log.names import TEMPORARY

_crc32c = crc32.iscsi
_MAGIC = b"PSTK"
_FRAME = struct.Struct("<4sHHII")
_VERSION = 1


class Kind(enum.IntEnum):
    """What a small file is."""

    IDENTITY = 1
    EPOCHS = 2
    CHECKPOINT = 3
    SNAPSHOT = 4
    METADATA = 5


def frame(kind: Kind, payload: bytes) -> bytes:
    """The content of a file of this kind."""
    head = _FRAME.pack(_MAGIC, kind, _VERSION, len(payload), 0)[4:12]
    return b"".join((_MAGIC, head, struct.pack("<I", _crc32c(payload, _crc32c(head))), payload))


def unframe(kind: Kind, content: Buffer) -> memoryview:
    """The payload, or CorruptFile."""
    view = memoryview(content)
    if len(view) < _FRAME.size:
        raise CorruptFile(f"a {kind.name.lower()} file of {len(view)} bytes is too short")
    magic, found, version, length, crc = _FRAME.unpack_from(view)
    payload = view[_FRAME.size :]
    if magic != _MAGIC or found != kind:
        raise CorruptFile(f"this is no {kind.name.lower()} file")
    if length != len(payload):
        raise CorruptFile(f"the {kind.name.lower()} file says {length} bytes and has {len(payload)}")
    if _crc32c(payload, _crc32c(view[4:12])) != crc:
        raise CorruptFile(f"the CRC-32C of the {kind.name.lower()} file does not match")
    if version != _VERSION:
        raise CorruptFile(f"version {version} of the {kind.name.lower()} file is not known here")
    return payload


def read_file(disk: Disk, path: str) -> bytes | None:
    """The content of a small file, or None if there is no such file."""
    try:
        file = disk.open(path, readonly=True)
    except NoSuchFile:
        return None
    try:
        return file.pread(0, file.size())
    finally:
        file.close()


def write_temporary(disk: Disk, path: str, content: bytes) -> None:
    """Write `path`.tmp and wait until its bytes are on the device."""
    file = disk.open(path + TEMPORARY, create=True)
    try:
        file.truncate(0)
        file.append(content)
        file.sync()
    finally:
        file.close()


def replace_durably(disk: Disk, directory: str, name: str, content: bytes) -> None:
    """Replace a small file; when this returns, the new one survives a power cut. Blocks."""
    path = f"{directory}/{name}"
    write_temporary(disk, path, content)
    disk.rename(path + TEMPORARY, path)
    disk.sync_directory(directory)
