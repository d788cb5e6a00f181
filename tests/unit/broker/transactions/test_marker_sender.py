"""Markers on their way: to whoever leads, again and again, until every partition has them."""

from collections.abc import Callable, Sequence
from uuid import UUID

import pytest

from penstock.broker.transactions.marker_sender import LeaderMarkerSender
from penstock.broker.transactions.markers import MarkerResults, TransactionMarker
from penstock.core.metadata import EMPTY_IMAGE, MetadataImage, TopicDeleted, replay
from penstock.core.model import ApiError, ErrorKind, NodeId, TopicId, TopicPartition
from penstock.observability import CounterValue
from tests.support.manual_runtime import HandSyncs, HandTimers, hand_runtime
from tests.unit.broker.coordinator.leader_bench import topic_facts
from tests.unit.core.transactions.transaction_driver import at

A, B = TopicId(UUID(int=1)), TopicId(UUID(int=2))
MARKER = TransactionMarker(7, 1, 0, True, 2, (at("a"), at("a", 1), at("b")))


class Peers:
    """Nodes that write every marker but for what `errors` says."""

    def __init__(self) -> None:
        self.errors: dict[TopicPartition, ApiError] = {}
        self.requests: list[tuple[NodeId, list[TransactionMarker]]] = []

    def write_markers(
        self, node: NodeId, markers: Sequence[TransactionMarker], done: Callable[[MarkerResults], None]
    ) -> None:
        self.requests.append((node, list(markers)))
        done([{part: self.errors.get(part) for part in marker.partitions} for marker in markers])


class Bench:
    def __init__(self) -> None:
        self.timers = HandTimers()
        self.peers = Peers()
        self.retries = CounterValue()
        self.sender = LeaderMarkerSender(
            hand_runtime(self.timers, HandSyncs()),
            self.peers,  # type: ignore[arg-type]
            self.retries,
        )
        self.image: MetadataImage = replay(
            EMPTY_IMAGE, [*topic_facts("a", A, 2, leader=1), *topic_facts("b", B, 1, leader=2)]
        )
        self.sender.on_metadata(self.image)
        self.is_current = True
        self.outcomes: list[bool] = []

    def send(self, marker: TransactionMarker = MARKER) -> None:
        self.sender.send(marker, lambda: self.is_current, self.outcomes.append)

    def asked(self) -> list[tuple[int, list[tuple[TopicPartition, ...]]]]:
        requests, self.peers.requests = self.peers.requests, []
        return [(node, [marker.partitions for marker in markers]) for node, markers in requests]


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_markers_of_one_turn_go_to_each_leader_in_one_request(bench: Bench) -> None:
    bench.send()
    bench.send(MARKER._replace(producer_id=8, partitions=(at("a", 1),)))

    bench.timers.run()

    assert bench.asked() == [(1, [(at("a"), at("a", 1)), (at("a", 1),)]), (2, [(at("b"),)])]
    assert bench.outcomes == [True, True]


def test_a_transaction_without_partitions_is_done(bench: Bench) -> None:
    bench.send(MARKER._replace(partitions=()))
    bench.timers.run()

    assert (bench.outcomes, bench.asked()) == ([True], [])


def test_only_what_was_not_taken_is_sent_again_to_whoever_leads_by_then(bench: Bench) -> None:
    bench.peers.errors = {at("b"): ApiError(ErrorKind.NOT_LEADER)}
    bench.send()
    bench.timers.run()
    assert bench.outcomes == []
    bench.asked()
    bench.peers.errors = {}
    bench.sender.on_metadata(replay(EMPTY_IMAGE, topic_facts("b", B, 1, leader=3)))

    bench.timers.pass_ms(50)

    assert bench.asked() == [(3, [(at("b"),)])]
    assert bench.outcomes == [True]
    assert bench.retries.count == 1


def test_a_new_leader_gets_its_marker_without_a_pause(bench: Bench) -> None:
    bench.peers.errors = {at("b"): ApiError(ErrorKind.NOT_LEADER)}
    bench.send()
    bench.timers.pass_ms(10_000)
    bench.asked()
    bench.peers.errors = {}

    bench.sender.on_metadata(replay(EMPTY_IMAGE, topic_facts("b", B, 1, leader=3)))
    bench.timers.run()

    assert bench.asked() == [(3, [(at("b"),)])]
    assert bench.outcomes == [True]
    bench.timers.pass_ms(10_000)
    assert bench.asked() == []


def test_retries_become_less_frequent(bench: Bench) -> None:
    bench.peers.errors = {at("b"): ApiError(ErrorKind.NOT_ENOUGH_REPLICAS)}
    bench.send()

    bench.timers.pass_ms(10_000)

    assert 10 < len(bench.asked()) < 20
    assert bench.outcomes == []


def test_a_partition_that_knows_a_later_epoch_has_had_its_marker(bench: Bench) -> None:
    bench.peers.errors = {at("b"): ApiError(ErrorKind.PRODUCER_FENCED)}
    bench.send()
    bench.timers.run()

    assert bench.outcomes == [True]


def test_a_coordinator_that_meets_a_newer_one_goes_on_until_it_is_not_current_any_more(bench: Bench) -> None:
    bench.peers.errors = {at("b"): ApiError(ErrorKind.STALE_COORDINATOR)}
    bench.send()
    bench.timers.pass_ms(1_000)
    assert bench.outcomes == []
    bench.is_current = False

    bench.timers.pass_ms(2_000)

    assert bench.outcomes == [False]


def test_a_current_coordinator_that_was_refused_as_stale_gets_its_marker_written(bench: Bench) -> None:
    bench.peers.errors = {at("b"): ApiError(ErrorKind.STALE_COORDINATOR)}
    bench.send()
    bench.timers.run()
    bench.peers.errors = {}

    bench.timers.pass_ms(100)

    assert bench.outcomes == [True]


def test_what_is_not_current_any_more_is_not_sent(bench: Bench) -> None:
    bench.peers.errors = {at("b"): ApiError(ErrorKind.NOT_LEADER)}
    bench.send()
    bench.timers.run()
    bench.asked()
    bench.is_current = False

    bench.timers.pass_ms(100)

    assert (bench.asked(), bench.outcomes) == ([], [False])


def test_a_topic_that_was_deleted_needs_no_marker_but_a_new_one_is_waited_for(bench: Bench) -> None:
    bench.sender.on_metadata(replay(bench.image, [TopicDeleted(B)]))
    bench.send()
    bench.timers.pass_ms(4_000)
    assert bench.outcomes == []

    bench.timers.pass_ms(3_000)

    assert bench.outcomes == [True]
    assert all(node == 1 for node, _ in bench.asked())


def test_a_request_has_a_bounded_number_of_partitions(bench: Bench) -> None:
    bench.sender.on_metadata(replay(EMPTY_IMAGE, topic_facts("a", A, 5_000, leader=1)))
    bench.send(MARKER._replace(partitions=tuple(at("a", index) for index in range(4_500))))
    bench.send(MARKER._replace(producer_id=8, partitions=(at("a"),)))

    bench.timers.run()

    sizes = [[len(each) for each in partitions] for _, partitions in bench.asked()]
    assert sizes == [[2_000], [2_000], [500, 1]]
    assert bench.outcomes == [True, True]
