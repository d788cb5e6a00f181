"""Takes over the metadata of a directory that a quorum of one kept before there was Raft.

Its image becomes the founding snapshot of the raft log, and its term the ballot's, so that no
term is used twice. The raft log is made last: a directory that has one is never adopted again.
"""

from collections.abc import Callable

from penstock.core.metadata import EMPTY_IMAGE, replayed
from penstock.core.metadata import snapshot as facts_of
from penstock.core.raft import Ballot, Configuration, Term, founding
from penstock.observability import log as events
from penstock.services.cluster.ballot import read_ballot
from penstock.services.cluster.metadata_log import DIRECTORY as OLD_LOG
from penstock.services.cluster.metadata_log import open_metadata_log, read_facts
from penstock.services.cluster.raft.images import encode_snapshot, write_snapshot
from penstock.services.cluster.raft.promises import write_ballot
from penstock.services.cluster.snapshots import META, SUFFIX, load_snapshots
from penstock.services.cluster.solo import MetadataLost, QuorumStore


def adopt(place: QuorumStore, founders: Configuration, ticks: Callable[[], int]) -> bool:
    """Write down what the old log says; False if there is no old log. Blocks."""
    disk = place.disk
    log = open_metadata_log(disk, place.commit, ticks)
    if log is None:
        return False
    snapshot, _ = load_snapshots(disk)
    start = log.start if snapshot is None else snapshot.end
    if not log.start <= start <= log.end or (snapshot is None and start > 0):
        raise MetadataLost(f"the metadata log has {log.start} to {log.end}, and no snapshot fits it")
    image = replayed(EMPTY_IMAGE if snapshot is None else snapshot.image, read_facts(log, start))
    meta = founding(founders)
    write_snapshot(disk, meta.index, encode_snapshot(meta, log.end, facts_of(image)))
    last = read_ballot(disk)
    # Terms counted from 0 there, and 0 is before the first one here.
    write_ballot(disk, Ballot(Term(1 if last is None else last + 1), None))
    events.info("metadata.adopted", facts=log.end, term=last)
    log.abandon()
    return True


def forget_adopted(place: QuorumStore) -> None:
    """Remove what was taken over. Blocks; begun again after a power cut."""
    disk = place.disk
    if not disk.exists(f"{META}/ballot") and not disk.is_directory(OLD_LOG):
        return
    disk.remove_tree(OLD_LOG)
    for name in disk.listdir(META):
        if name.endswith(SUFFIX) or name == "ballot":
            disk.remove(f"{META}/{name}")
    disk.sync_directory(META)
