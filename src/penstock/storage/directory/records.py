r"""Small text files with a checksum, replaced as a whole.

A person can read them, and damage shows. The content `b"directory-id 2f0c…\n"` is stored as

    directory-id 2f0c8a4e-…
    crc32c 1a2b3c4d
"""

from fastcrc import crc32

from penstock.storage.disk import Disk, NoSuchFile

_crc32c = crc32.iscsi


class BrokenRecord(Exception):
    """The file is not what was written. Its reader decides what that means."""


def write_record(disk: Disk, directory: str, name: str, value: str) -> None:
    """Write `directory/name`; when this returns, it survives a power cut."""
    line = f"{name} {value}\n".encode()
    path = f"{directory}/{name}"
    file = disk.open(path + ".new", create=True)
    try:
        file.truncate(0)
        file.append(line, b"crc32c %08x\n" % _crc32c(line))
        file.sync()
    finally:
        file.close()
    disk.rename(path + ".new", path)
    disk.sync_directory(directory)


def read_record(disk: Disk, directory: str, name: str) -> str | None:
    """The value, or None if the file does not exist; raises BrokenRecord."""
    path = f"{directory}/{name}"
    try:
        file = disk.open(path, readonly=True)
    except NoSuchFile:
        return None
    try:
        content = file.pread(0, 4096)
    finally:
        file.close()
    line, _, rest = content.partition(b"\n")
    if rest != b"crc32c %08x\n" % _crc32c(line + b"\n"):
        raise BrokenRecord(f"{path} is damaged")
    key, _, value = line.decode(errors="replace").partition(" ")
    if key != name:
        raise BrokenRecord(f"{path} holds {key!r}")
    return value
