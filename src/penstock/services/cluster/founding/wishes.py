"""What a newcomer wants to become, written down until it is: `meta/joining` holds `voter`."""

from penstock.storage.data_directory import RecordFileDamaged, read_record, write_record
from penstock.storage.disk import Disk

_META, _NAME, _VOTER = "meta", "joining", "voter"


def read_wish(disk: Disk) -> bool:
    """Whether this directory joined in order to vote, and has no vote yet. Blocks."""
    try:
        return read_record(disk, _META, _NAME) == _VOTER
    except RecordFileDamaged:
        # Nothing is lost: an operator can give it a vote.
        return False


def write_wish(disk: Disk, *, wants_vote: bool) -> None:
    """Remember the wish, or forget it. Blocks."""
    path = f"{_META}/{_NAME}"
    if wants_vote:
        write_record(disk, _META, _NAME, _VOTER)
    elif disk.exists(path):
        disk.remove(path)
        disk.sync_directory(_META)
