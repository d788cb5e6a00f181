"""Frames that are late, doubled or lost: what a leader believes, and what it does not."""

from typing import Any, cast
from uuid import UUID

from penstock.broker.cluster.peers import Peer
from penstock.broker.replication.fetch_server import FollowerSession
from penstock.broker.replication.fetcher import ReplicaFetcher
from penstock.broker.replication.protocol import (
    FollowerProgress,
    FollowerProgressPartition,
    ReplicaFetch,
    ReplicaFetchPartition,
    encode_fetch,
    encode_progress,
    key_of,
)
from penstock.core.model import MILLISECOND, SECOND, NodeId, TopicId
from penstock.runtime import Buffer
from penstock.sim import NetworkFaults
from tests.unit.broker.replication.stage import Stage

KEY = key_of(TopicId(UUID(int=ord("t"))), 0)
FAR = 1_000


def followed() -> Stage:
    """One record everywhere, and one that node 2 cannot get: it is cut off from the leader's responses."""
    stage = Stage()
    stage.create(1, 2)
    stage.append("a")
    stage.run(1_000)
    stage.world.network.cut("n1", "n2")
    stage.append("b")
    stage.run(50)
    assert stage.leader().high_watermark == 1
    return stage


def session_of(stage: Stage) -> FollowerSession:
    return stage.brokers[NodeId(1)].replication.fetch_server._sessions[NodeId(2)]


def fetcher_of(stage: Stage) -> ReplicaFetcher:
    return stage.brokers[NodeId(2)].replication._fetchers[NodeId(1)]


def claim(stage: Stage, *, session: int = 0, sequence: int = 0, broker_epoch: int = 0) -> bytes:
    """A fetch that says more than is true; the numbers are added to those of the session."""
    known = session_of(stage)
    leader_epoch = stage.leader().leader_epoch
    row = ReplicaFetchPartition(KEY, leader_epoch, 2, leader_epoch, 2)
    return encode_fetch(
        ReplicaFetch(
            known.broker_epoch + broker_epoch,
            known.number + session,
            sequence if session or broker_epoch else known.sequence + sequence,
            [row],
            [],
        )
    )


def watermark_after(stage: Stage, frame: bytes) -> int:
    stage.send_raw(2, 1, frame)
    stage.run(20)
    return stage.leader().high_watermark


def test_the_next_fetch_of_the_session_counts() -> None:
    stage = followed()

    assert watermark_after(stage, claim(stage, sequence=1)) == 2


def test_a_fetch_that_comes_twice_or_late_does_not_count() -> None:
    stage = followed()

    assert watermark_after(stage, claim(stage, sequence=0)) == 1
    assert watermark_after(stage, claim(stage, sequence=-1)) == 1


def test_the_first_fetch_of_an_earlier_session_does_not_bring_it_back() -> None:
    stage = followed()
    number = session_of(stage).number

    assert number > 1
    assert watermark_after(stage, claim(stage, session=-1)) == 1
    assert session_of(stage).number == number


def test_fetches_of_a_former_incarnation_do_not_count() -> None:
    stage = followed()

    assert watermark_after(stage, claim(stage, broker_epoch=-1)) == 1


def test_a_fetch_behind_a_gap_ends_the_session_and_the_follower_begins_another() -> None:
    stage = followed()
    stage.world.network.heal_all()
    before = session_of(stage).number

    stage.send_raw(2, 1, claim(stage, sequence=7))
    stage.run(200)

    assert session_of(stage).number > before
    assert session_of(stage).sequence >= 0
    assert stage.leader().high_watermark == 2


def test_progress_beyond_what_was_fetched_does_not_count() -> None:
    stage = followed()
    known = session_of(stage)
    row = FollowerProgressPartition(KEY, stage.leader().leader_epoch, FAR)

    progress = FollowerProgress(known.broker_epoch, known.number, known.progress_number + 1, [row])

    assert watermark_after(stage, encode_progress(progress)) == 1


def test_progress_of_another_session_or_epoch_is_ignored() -> None:
    stage = followed()
    # The leader knows that the follower has the second record, and not that it is synced.
    known = session_of(stage)
    leader_epoch = stage.leader().leader_epoch
    row = ReplicaFetchPartition(KEY, leader_epoch, 2, leader_epoch, 1)
    fetch = ReplicaFetch(known.broker_epoch, known.number, known.sequence + 1, [row], [])
    assert watermark_after(stage, encode_fetch(fetch)) == 1
    number = known.progress_number + 1
    said = [FollowerProgressPartition(KEY, leader_epoch, 2)]
    old_epoch = [FollowerProgressPartition(KEY, leader_epoch - 1, 2)]

    for late in (
        FollowerProgress(known.broker_epoch, known.number - 1, number, said),
        FollowerProgress(known.broker_epoch - 1, known.number, number, said),
        FollowerProgress(known.broker_epoch, known.number, number, old_epoch),
        FollowerProgress(known.broker_epoch, known.number, known.progress_number, said),
    ):
        assert watermark_after(stage, encode_progress(late)) == 1

    good = FollowerProgress(known.broker_epoch, known.number, number + 1, said)
    assert watermark_after(stage, encode_progress(good)) == 2


def test_a_session_does_not_name_what_has_not_moved() -> None:
    stage = Stage()
    stage.create(1, 2, partitions=30)
    # Fetches overtook each other when the partitions came, so everything is said once more.
    stage.run(5_000)
    sizes: list[int] = []
    fetcher = fetcher_of(stage)
    send = fetcher._send

    def measured(frame: Buffer) -> bool:
        sizes.append(len(frame))
        return send(frame)

    fetcher._send = measured

    stage.run(2_000)
    idle = max(sizes)
    sizes.clear()
    stage.append("a", index=7)
    stage.run(100)

    assert idle == len(encode_fetch(ReplicaFetch(0, 0, 0, [], [])))
    assert max(sizes) == len(
        encode_fetch(ReplicaFetch(0, 0, 0, [ReplicaFetchPartition(KEY, 0, 0, 0, 0)], []))
    )


def test_answers_that_come_twice_do_not_breed_fetches() -> None:
    stage = Stage()
    stage.create(1, 2)
    stage.run(5_000)
    sent: list[Buffer] = []
    fetcher = fetcher_of(stage)
    send = fetcher._send

    def counted(frame: Buffer) -> bool:
        sent.append(frame)
        return send(frame)

    fetcher._send = counted
    stage.world.network.network_faults = NetworkFaults(delay_max_ns=20 * MILLISECOND, duplicate=0.3)

    for number in range(150):
        stage.append(f"{number}")
        stage.run(5)
    stage.run(200)

    assert stage.ends(2) == [150]
    # For each record a fetch that says where the log ends now, and a word about each sync.
    assert len(sent) < 400


def test_an_answer_that_is_lost_while_another_fetch_is_under_way_is_made_up_for() -> None:
    stage = followed()
    # The leader has sent the record, and waits for the follower to move. Before that is
    # missed, the follower takes up another partition, and says nothing of the first.
    stage.world.network.heal("n1", "n2")
    stage.create_another("u", 1, 2)
    assert stage.ends(2) == [1]
    assert fetcher_of(stage)._is_waiting

    # Every fetch has its response in time from here on.
    stage.run(600)

    assert stage.ends(2) == [2]
    assert stage.leader().high_watermark == 2


def test_fetches_that_overtake_one_another_and_get_no_response_are_no_loss() -> None:
    stage = Stage()
    stage.create(1, 2)
    stage.run(5_000)
    session = session_of(stage).number

    for topic in "abcdefghijklmnopqrs":
        # Its log is there in a moment, and the fetch that names it overtakes the one that is under way.
        stage.create_another(topic, 1, 2)

    assert session_of(stage).number == session
    assert session_of(stage).sequence > session_of(stage).responses > 0


def test_responses_of_a_leader_that_is_very_slow_are_used() -> None:
    stage = Stage()
    stage.create(1, 2)
    stage.run(5_000)
    # There and back takes twice as long as a follower waits at first.
    stage.world.network.network_faults = NetworkFaults(delay_min_ns=2 * SECOND, delay_max_ns=3 * SECOND)

    for number in range(30):
        stage.append(f"{number}")
        stage.run(1_000)

    assert stage.ends(2)[0] > 10


def test_a_response_of_which_a_part_has_come_is_waited_for() -> None:
    stage = followed()
    stage.run(1_000)
    fetcher = fetcher_of(stage)
    session = fetcher._session
    fetcher._is_receiving = lambda: True

    # All that the leader says is lost, and the follower would begin anew every few seconds.
    stage.run(8_000)
    waited = fetcher._session
    fetcher._is_receiving = lambda: False
    stage.run(3_000)

    assert waited == session
    assert fetcher._session > session


def test_what_is_on_its_way_is_not_sent_again_with_what_has_come_since() -> None:
    stage = followed()
    metrics = stage.brokers[NodeId(1)].replication.metrics
    sent = metrics.bytes_sent.count
    assert sent > 0

    # The log grows, and a fetch comes that says nothing of this partition.
    stage.append("c")
    stage.create_another("u", 1, 2)
    stage.run(500)
    again = metrics.bytes_sent.count
    stage.world.network.heal_all()
    stage.run(5_000)

    assert again == sent
    assert stage.ends(2) == [3]


def test_a_link_that_is_full_is_not_read_for_in_every_turn() -> None:
    stage = followed()
    stage.world.network.heal_all()
    stage.run(3_000)
    server = stage.brokers[NodeId(1)].replication.fetch_server
    collect, collected = server._response_builder.collect, 0

    class FullLink:
        node_id = NodeId(2)

        def send(self, *_parts: Buffer) -> bool:
            return False

    def count(session: FollowerSession, *, time_is_up: bool) -> Any:
        nonlocal collected
        collected += 1
        return collect(session, time_is_up=time_is_up)

    server._response_builder.collect = count  # type: ignore[method-assign]
    stage.append("c")
    session_of(stage).pending = cast("Peer", FullLink())
    for _ in range(100):
        server._wake(session_of(stage))
        stage.run(1)

    assert 0 < collected < 10
