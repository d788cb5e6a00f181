"""An empty log."""

from collections.abc import Callable

from penstock.core.model import Offset, TopicId
from penstock.core.replica import LeaderEpochHistory, ProducerStateManager, encode_snapshot
from penstock.storage.disk import Disk
from penstock.storage.disk.errors import disk_error
from penstock.storage.log.checkpointing import write_checkpoint
from penstock.storage.log.durability import Commit, Durability, ImmediateCommit
from penstock.storage.log.files.checkpoint import Checkpoint
from penstock.storage.log.files.epochs import encode_epochs
from penstock.storage.log.files.frame import replace_durably
from penstock.storage.log.files.identity import encode_identity
from penstock.storage.log.names import EPOCHS, IDENTITY
from penstock.storage.log.options import LogOptions
from penstock.storage.log.recovery.replay import rebuilder
from penstock.storage.log.segments import Segments
from penstock.storage.log.state import LogState

_EEXIST = 17


def create_log(
    disk: Disk,
    directory: str,
    topic_id: TopicId,
    options: LogOptions,
    commit: Commit | None,
    ticks: Callable[[], int] | None,
) -> LogState:
    """Make the files of an empty log; the topic id comes last and says that it is complete."""
    if disk.exists(f"{directory}/{IDENTITY}"):
        raise disk_error("create log", directory, _EEXIST)
    disk.make_directory(directory)
    # A creation that was interrupted may have left anything here but data.
    for name in disk.listdir(directory):
        disk.remove_tree(f"{directory}/{name}")
    zero = Offset(0)
    empty = Checkpoint(
        recovery_point=zero,
        segment=zero,
        position=0,
        log_start=zero,
        high_watermark=zero,
        producers=encode_snapshot(ProducerStateManager()),
    )
    state = build_state(disk, directory, options, empty, commit, ticks)
    state.segments.add_active(zero, fresh=True)
    replace_durably(disk, directory, EPOCHS, encode_epochs(LeaderEpochHistory()))
    write_checkpoint(state, empty)
    replace_durably(disk, directory, IDENTITY, encode_identity(topic_id))
    for parent in _parents(directory):
        disk.sync_directory(parent)
    return state


def build_state(
    disk: Disk,
    directory: str,
    options: LogOptions,
    checkpoint: Checkpoint,
    commit: Commit | None,
    ticks: Callable[[], int] | None,
) -> LogState:
    """A log without segments, at the checkpoint."""
    durability = Durability(disk, directory, commit or ImmediateCommit(), checkpoint.recovery_point)
    state = LogState(disk, directory, options, durability, checkpoint, ticks)
    state.segments = Segments(disk, directory, options, rebuilder(state), durability.retire)
    return state


def _parents(directory: str) -> list[str]:
    """Every directory above, up to the disk's root."""
    parts = directory.split("/")
    return ["/".join(parts[:count]) for count in range(len(parts) - 1, -1, -1)]
