"""The handshake of a link between nodes: the first frame each way.

The dialling side sends its hello first; the other side replies with its own hello, or with a
refusal, and closes the connection.

    hello    magic 'PNSK' | kind 1 | version uint16 | cluster id 16 | node id int32 |
             directory id 16 | authentication length uint16 | authentication
    refusal  magic 'PNSK' | kind 2 | version uint16 | reason uint8

Both kinds start with the same seven bytes in every version to come, so that a node
can always tell an older one that it is too old. Bytes behind the known fields are
ignored: newer versions append.
"""

import enum
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias
from uuid import UUID

from penstock.core.model import NodeId, ProtocolError
from penstock.runtime.port import NodeIdentity

MAGIC = b"PNSK"
VERSION = 1
# Nodes of an older version are accepted down to this one, so that nodes can be replaced one by one.
VERSION_MIN = 1
AUTHENTICATION_BYTES_MAX = 1024
GREETING_BYTES_MAX = 2048
_PREFIX = struct.Struct(">4sBH")
_HELLO = struct.Struct(">16si16sH")
_KIND_HELLO = 1
_KIND_REFUSAL = 2
NO_CLUSTER = UUID(int=0)


class HelloRefusal(enum.IntEnum):
    """Why a node rejects another."""

    VERSION = 1
    OTHER_CLUSTER = 2
    AUTHENTICATION = 3
    TOO_MANY_LINKS = 4


@dataclass(frozen=True, slots=True)
class Hello:
    """The identity of a node. The authentication field is opaque here; empty means none."""

    identity: NodeIdentity
    authentication: bytes = b""
    version: int = VERSION


Admit: TypeAlias = Callable[[Hello], HelloRefusal | None]


def same_cluster(own: NodeIdentity) -> Admit:
    """Admit every node of our cluster, and those that have no cluster yet."""

    def admit(hello: Hello) -> HelloRefusal | None:
        theirs = hello.identity.cluster_id
        if NO_CLUSTER in (own.cluster_id, theirs) or own.cluster_id == theirs:
            return None
        return HelloRefusal.OTHER_CLUSTER

    return admit


def write_hello(hello: Hello) -> bytes:
    identity = hello.identity
    assert len(hello.authentication) <= AUTHENTICATION_BYTES_MAX
    return (
        _PREFIX.pack(MAGIC, _KIND_HELLO, hello.version)
        + _HELLO.pack(
            identity.cluster_id.bytes,
            identity.node_id,
            identity.directory_id.bytes,
            len(hello.authentication),
        )
        + hello.authentication
    )


def write_refusal(refusal: HelloRefusal) -> bytes:
    return _PREFIX.pack(MAGIC, _KIND_REFUSAL, VERSION) + bytes([refusal])


def read_greeting(frame: bytes) -> Hello | HelloRefusal:
    """Read the first frame of a link; anything that is not a greeting is a `ProtocolError`."""
    if len(frame) > GREETING_BYTES_MAX:
        raise ProtocolError(f"a handshake frame of {len(frame)} bytes is too short")
    try:
        magic, kind, version = _PREFIX.unpack_from(frame)
        if magic != MAGIC:
            raise ProtocolError("the other side is not a Penstock node: wrong magic")
        if kind == _KIND_REFUSAL:
            return _read_refusal(frame)
        if kind != _KIND_HELLO or version < 1:
            raise ProtocolError(f"unknown handshake frame, kind {kind} version {version}")
        return _read_hello(frame, version)
    except struct.error as short:
        raise ProtocolError("a handshake frame ends too early") from short


def _read_hello(frame: bytes, version: int) -> Hello:
    cluster, node, directory, length = _HELLO.unpack_from(frame, _PREFIX.size)
    start = _PREFIX.size + _HELLO.size
    authentication = frame[start : start + length]
    if length > AUTHENTICATION_BYTES_MAX or len(authentication) < length:
        raise ProtocolError("the authentication field is longer than the handshake frame")
    if node < 0:
        raise ProtocolError(f"invalid node id {node} in the handshake")
    return Hello(
        NodeIdentity(UUID(bytes=cluster), NodeId(node), UUID(bytes=directory)), authentication, version
    )


def _read_refusal(frame: bytes) -> HelloRefusal:
    reason = frame[_PREFIX.size : _PREFIX.size + 1]
    if not reason:
        raise ProtocolError("a handshake refusal without a reason")
    try:
        return HelloRefusal(reason[0])
    except ValueError as unknown:
        raise ProtocolError(f"handshake refused for unknown reason {reason[0]}") from unknown
