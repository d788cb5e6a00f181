"""The term of the last leadership, kept apart from the log: it must be durable before it is used."""

from penstock.core.model import CorruptionError, LeaderEpoch
from penstock.storage.directory.records import BrokenRecord, read_record, write_record
from penstock.storage.disk import Disk

_META, _NAME = "meta", "ballot"


def read_ballot(disk: Disk) -> LeaderEpoch | None:
    """The highest term that this node has ever used; None if it has used none."""
    try:
        text = read_record(disk, _META, _NAME)
        return None if text is None else LeaderEpoch(int(text))
    except (BrokenRecord, ValueError) as broken:
        # Guessing a term could let two leaders write under the same one.
        raise CorruptionError(f"{_META}/{_NAME} cannot be read: {broken}") from None


def write_ballot(disk: Disk, term: LeaderEpoch) -> None:
    """Take note of a term; it survives a power cut when this returns."""
    write_record(disk, _META, _NAME, str(term))
