"""Levels of `metadata.version`: what may be written while nodes of an older version are in the cluster.

    a node       reads every level up to its highest, and can run at those from its lowest on
    a cluster    runs at one level, which is a fact of the metadata log and never goes back
    in between   nodes are replaced one by one; the new ones do what the old ones can read, until an
                 operator raises the level (`penstock cluster upgrade`), which takes all nodes

A new field of a stored struct goes to its end, and says since when it may be written:

    class Partition(StoredStruct, frozen=True):
        …
        witness: Annotated[NodeId, since(26)] = NO_BROKER

Below level 26 nobody sets it: decisions ask `image.feature_level(METADATA_VERSION)`. While it has its
default it is not written either, so that older nodes read the row they know. A new fact, command or
reply has `SINCE: ClassVar[int] = 26`; a new field of a command is a `field(metadata=since_level(26))`.
Whatever is decided is compared with the level before it is appended: to forget the question is a
failed assert on the controller, not bytes that older nodes cannot read.

Left out: a way back. What was written at a level stays in logs and snapshots.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, get_type_hints

import msgspec

from penstock.core.model import PenstockError

METADATA_VERSION = "metadata.version"
# The levels that this version can run at. The first format of ours announces the metadata level of
# Kafka 4.0, whose features it has, so that Kafka's tools can put a name to it.
LOWEST_LEVEL = 25
HIGHEST_LEVEL = 26
# Nodes of this level coordinate transactions, write markers and ask each other about both.
TRANSACTIONS_LEVEL = 26
# Nodes of this level keep queues, and ask each other about them.
QUEUES_LEVEL = 26
# The same for records that are published later.
DELAYS_LEVEL = 26
# Brokers of this level register the timeout of their sessions.
SESSIONS_LEVEL = 26
# Nodes of this level know access rules, credentials, API keys and client quotas.
ACCESS_LEVEL = 26
_SINCE = "since"


class StoredStruct(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A value that facts carry: a row of fields, closed to fields it does not know."""


class LevelTooHigh(PenstockError):
    """The metadata is at a level that this version of Penstock does not know."""

    def __init__(self, level: int) -> None:
        super().__init__(
            f"the cluster runs at {METADATA_VERSION} {level}, and this version of Penstock knows levels up "
            f"to {HIGHEST_LEVEL}: start the newer version on this node"
        )


def since(level: int) -> msgspec.Meta:
    """The annotation of a stored field that is newer than its struct."""
    return msgspec.Meta(extra={_SINCE: level})


def since_level(level: int) -> Mapping[str, int]:
    """The metadata of a command's field that is newer than the command."""
    return {_SINCE: level}


def stored_level(value: Any) -> int:
    """The lowest level at which nodes can read this value of a fact."""
    if isinstance(value, tuple):
        return max(map(stored_level, value), default=LOWEST_LEVEL)
    if not isinstance(value, msgspec.Struct):
        return LOWEST_LEVEL
    kind = type(value)
    level: int = getattr(kind, "SINCE", LOWEST_LEVEL)
    newer = _newer_fields(kind)
    for field in kind.__struct_fields__:
        content = getattr(value, field)
        if field in newer and content != newer[field][1]:
            level = max(level, newer[field][0])
        level = max(level, stored_level(content))
    return level


def command_level(command: Any) -> int:
    """The lowest level at which a controller knows this command, as it is filled in."""
    level: int = getattr(type(command), "SINCE", LOWEST_LEVEL)
    for field in dataclasses.fields(command):
        added = field.metadata.get(_SINCE, LOWEST_LEVEL)
        if added > level and getattr(command, field.name) != field.default:
            level = added
    return level


def has_newer_fields(kind: Any) -> bool:
    """Whether rows of this type, or of a type in it, may have to be written without their last fields."""
    return _has_newer_fields(kind, [])


def stored_row(value: Any) -> Any:
    """The value without newer fields at the end of its rows that have their defaults."""
    if isinstance(value, tuple):
        return tuple(stored_row(each) for each in value)
    if not isinstance(value, msgspec.Struct):
        return value
    kind = type(value)
    row = [stored_row(getattr(value, field)) for field in kind.__struct_fields__]
    newer = _newer_fields(kind)
    for field in reversed(kind.__struct_fields__):
        if field not in newer or getattr(value, field) != newer[field][1]:
            break
        row.pop()
    tag = kind.__struct_config__.tag
    return row if tag is None else [tag, *row]


def _has_newer_fields(kind: Any, seen: list[type]) -> bool:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        if kind in seen:
            return False
        seen.append(kind)
        return bool(_newer_fields(kind)) or any(
            _has_newer_fields(each, seen) for each in get_type_hints(kind).values()
        )
    return any(_has_newer_fields(each, seen) for each in getattr(kind, "__args__", ()))


_newer: dict[type[msgspec.Struct], dict[str, tuple[int, Any]]] = {}


def _newer_fields(kind: type[msgspec.Struct]) -> dict[str, tuple[int, Any]]:
    """The fields that were added to a struct: since which level, and their default."""
    known = _newer.get(kind)
    if known is None:
        known = _newer[kind] = {}
        for field in msgspec.structs.fields(kind):
            for meta in getattr(get_type_hints(kind, include_extras=True)[field.name], "__metadata__", ()):
                if isinstance(meta, msgspec.Meta) and meta.extra and _SINCE in meta.extra:
                    known[field.name] = meta.extra[_SINCE], field.default
    return known
