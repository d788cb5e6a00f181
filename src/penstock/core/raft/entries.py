"""What the log consists of, and what stands for the part of it that is gone."""

from typing import TypeAlias

from msgspec import Struct

from penstock.core.raft.configuration import NOBODY, Configuration
from penstock.core.raft.identity import Index, Term

# Somebody else's bytes; a new set of members; or nothing, which a leader appends first.
Content: TypeAlias = bytes | Configuration | None

# What an entry costs besides its payload, for every limit in bytes.
ENTRY_OVERHEAD_BYTES = 32
MEMBER_BYTES = 20


class Entry(Struct, frozen=True):
    """One line of the log. Index and term together name it: no other entry ever has both."""

    index: Index
    term: Term
    content: Content

    @property
    def size_bytes(self) -> int:
        content = self.content
        if isinstance(content, bytes):
            return ENTRY_OVERHEAD_BYTES + len(content)
        return ENTRY_OVERHEAD_BYTES + (0 if content is None else MEMBER_BYTES * len(content.members))


class SnapshotMeta(Struct, frozen=True):
    """A snapshot stands for every entry up to and including `index`."""

    index: Index
    term: Term
    configuration: Configuration


def founding(configuration: Configuration = NOBODY) -> SnapshotMeta:
    """What a log begins with: nothing but its first members. A newcomer's log does not know any."""
    return SnapshotMeta(Index(0), Term(0), configuration)
