"""The ballot on disk: `meta/raft/ballot` holds the term, and node and directory that got the vote."""

from uuid import UUID

from penstock.core.model import CorruptionError, NodeId
from penstock.core.raft import BLANK_BALLOT, HardState, Member, Term
from penstock.services.cluster.raft.images import DIRECTORY
from penstock.storage.data_directory import RecordFileDamaged, read_record, write_record
from penstock.storage.disk import Disk

_NAME = "ballot"
_NOBODY = "-"


def read_ballot(disk: Disk) -> HardState | None:
    """What this directory has promised; None if nothing yet. Blocks."""
    try:
        text = read_record(disk, DIRECTORY, _NAME)
        if text is None:
            return None
        term, node, directory = text.split(" ")
        voted_for = None if node == _NOBODY else Member(NodeId(int(node)), UUID(directory))
        return HardState(Term(int(term)), voted_for)
    except (RecordFileDamaged, ValueError) as broken:
        # A guess could be a second vote in the same term.
        raise CorruptionError(f"{DIRECTORY}/{_NAME} cannot be read: {broken}") from None


def write_ballot(disk: Disk, ballot: HardState) -> None:
    """Promise; it survives a power cut when this returns. Blocks."""
    assert ballot != BLANK_BALLOT
    member = ballot.voted_for
    vote = f"{_NOBODY} {_NOBODY}" if member is None else f"{member.node_id} {member.directory_id}"
    write_record(disk, DIRECTORY, _NAME, f"{ballot.term} {vote}")
