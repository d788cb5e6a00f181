"""The two bytes in front of everything stored: which version of which message follows."""

from collections.abc import Mapping
from typing import Final, TypeVar

from penstock.core.model import ProtocolError
from penstock.core.wire.codec import decode_whole, decoder
from penstock.core.wire.message import Message
from penstock.core.wire.reading import Buffer
from penstock.core.wire.stored.classic_group import GroupMetadataKey
from penstock.core.wire.stored.consumer_group import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
)
from penstock.core.wire.stored.offset_commit import OffsetCommitKey
from penstock.core.wire.stored.transaction import TransactionLogKey

M = TypeVar("M", bound=Message)

_VERSION_BYTES: Final = 2


def _by_version(*keys: type[Message]) -> dict[int, type[Message]]:
    return {version: key for key in keys for version in key.__schema__.versions}


OFFSETS_KEYS: Final = _by_version(
    OffsetCommitKey,
    GroupMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupRegularExpressionKey,
)
TRANSACTION_KEYS: Final = _by_version(TransactionLogKey)


def write_stored(message: Message, version: int) -> bytes:
    """Answer the bytes of a key or value with its version in front."""
    return version.to_bytes(_VERSION_BYTES, "big") + message.encode(version)


def read_stored(message: type[M], buffer: Buffer) -> M:
    """Read a value; a version from the future is an error, because its meaning is unknown."""
    version = _version(buffer)
    if version not in message.__schema__.versions:
        raise ProtocolError(f"{message.__name__}: version {version} is unknown")
    return decode_whole(message, buffer, version, _VERSION_BYTES)


def read_embedded(message: type[M], buffer: Buffer) -> M:
    """Read what a client put into an opaque field.

    Clients newer than us add fields at the end, so a higher version is read as our highest and
    what follows is left alone: that is how the consumers of a mixed group understand each other.
    """
    versions = message.__schema__.versions
    version = _version(buffer)
    if version < 0:
        raise ProtocolError(f"{message.__name__}: version {version} is negative")
    return decoder(message, min(version, versions[-1]))(buffer, _VERSION_BYTES)[0]


def read_key(keys: Mapping[int, type[Message]], buffer: Buffer) -> Message:
    """Read a key of whichever kind its version says; `keys` is the table of the topic it is from."""
    version = _version(buffer)
    if version not in keys:
        raise ProtocolError(f"there is no key of version {version}")
    return decode_whole(keys[version], buffer, version, _VERSION_BYTES)


def _version(buffer: Buffer) -> int:
    if len(buffer) < _VERSION_BYTES:
        raise ProtocolError("a stored message ends before its version does")
    return int.from_bytes(buffer[:_VERSION_BYTES], "big", signed=True)
