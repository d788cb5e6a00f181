from penstock.core.model import Instant
from penstock.core.raft import Index, Term, bootstrap_snapshot
from penstock.core.raft.progress import Progress, ProgressState
from penstock.core.raft.types import SnapshotMeta

FIRST = Index(1)


def streaming(match: int) -> Progress:
    peer = Progress(Index(match + 1), Instant(0))
    peer.acknowledge(Index(match), FIRST)
    return peer


def test_a_probe_is_alone_until_it_is_answered() -> None:
    peer = Progress(Index(5), Instant(0))
    assert peer.has_room(3)

    peer.sent(Index(6))

    assert not peer.has_room(3)
    assert peer.acknowledge(Index(6), FIRST)
    assert (peer.pace, peer.match, peer.next) == (ProgressState.REPLICATE, 6, 7)


def test_a_stream_has_room_for_so_many_requests_and_answers_make_room() -> None:
    peer = streaming(4)
    for last in (5, 6, 7):
        peer.sent(Index(last))
    assert not peer.has_room(3)

    peer.acknowledge(Index(6), FIRST)

    assert peer.next == 8
    peer.sent(Index(8))
    assert peer.has_room(3)


def test_an_old_answer_takes_nothing_back() -> None:
    peer = streaming(9)

    assert not peer.acknowledge(Index(3), FIRST)

    assert (peer.match, peer.next) == (9, 10)


def test_a_conflict_ends_the_stream_but_never_goes_below_the_match() -> None:
    peer = streaming(4)
    peer.sent(Index(8))

    assert peer.reject(Index(8), Index(2))

    assert (peer.pace, peer.next) == (ProgressState.PROBE, 5)


def test_a_conflict_about_an_earlier_probe_is_ignored() -> None:
    peer = Progress(Index(9), Instant(0))
    peer.sent(Index(9))

    assert not peer.reject(Index(5), Index(3))
    assert peer.reject(Index(8), Index(6))

    assert peer.next == 6


def test_a_snapshot_is_over_when_the_member_has_what_our_log_begins_behind() -> None:
    peer = Progress(Index(3), Instant(0))
    peer.begin_snapshot(SnapshotMeta(Index(20), Term(2), bootstrap_snapshot().configuration), Instant(0))
    assert not peer.has_room(3)

    peer.acknowledge(Index(10), first=Index(16))
    assert peer.pace is ProgressState.SNAPSHOT
    peer.acknowledge(Index(20), first=Index(16))

    assert (peer.pace, peer.next, peer.snapshot) == (ProgressState.REPLICATE, 21, None)
