"""What coordinators and partition leaders ask of each other, between two nodes and within one."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from penstock.broker.cluster.rpc import WriteMarkers
from penstock.broker.transactions.batch_commit import BatchCommitService
from penstock.broker.transactions.markers import MarkerResults, TransactionMarker
from penstock.broker.transactions.peers import MarkerOrder, TransactionPeers
from penstock.core.model import ApiError, ErrorKind, NodeId, ProducerEpoch, ProducerId, TopicPartition
from penstock.core.transactions import (
    AddPartitions,
    BatchDone,
    BatchMember,
    Command,
    CommitBatch,
    PartitionResult,
    PartitionResults,
    VerifyPartitions,
)
from tests.unit.broker.cluster.cluster_stage import ClusterStage, cluster_of
from tests.unit.core.transactions.transaction_driver import at

HERE, THERE = NodeId(1), NodeId(2)
MARKERS = [
    TransactionMarker(7, 1, 0, True, 2, (at("a"), at("b", 1))),
    TransactionMarker(8, 3, 0, False, 0, (at("a"),)),
]
MEMBERS = [BatchMember("s#0", ProducerId(4), ProducerEpoch(2))]


class Coordinators:
    """All ids are coordinated by one node, which knows partition 0 of every topic."""

    def __init__(self, node: NodeId | ApiError) -> None:
        self.node = node
        self.commands: list[Command] = []

    def locate(self, transactional_id: str, done: Callable[[NodeId | ApiError], None]) -> None:
        done(self.node)

    def confirms_now(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partition: TopicPartition
    ) -> bool:
        return False

    def submit(self, command: Command) -> None:
        self.commands.append(command)
        match command:
            case CommitBatch() if command.batch == "bad":
                command.on_reply(ApiError(ErrorKind.PRODUCER_FENCED, "s#0"))
            case CommitBatch():
                command.on_reply(BatchDone(is_repeat=command.batch == "again"))
            case AddPartitions() | VerifyPartitions() if command.producer.epoch == 9:
                command.on_reply(ApiError(ErrorKind.PRODUCER_FENCED, "stale"))
            case AddPartitions() | VerifyPartitions():
                command.on_reply(
                    PartitionResults(
                        tuple(
                            PartitionResult(part, ErrorKind.TRANSACTION_ABORTABLE if part.partition else None)
                            for part in command.partitions
                        )
                    )
                )
            case _:
                raise AssertionError(command)


class Writer:
    """Writes markers into partition 0 of every topic."""

    def __init__(self) -> None:
        self.markers: list[TransactionMarker] = []

    def write(self, markers: Sequence[TransactionMarker], done: Callable[[MarkerResults], None]) -> None:
        self.markers += markers
        error = ApiError(ErrorKind.NOT_LEADER, "elsewhere")
        done([{part: error if part.partition else None for part in each.partitions} for each in markers])


class Stage:
    def __init__(self, coordinator: NodeId | ApiError) -> None:
        self.cluster: ClusterStage = cluster_of(2)
        self.peers: dict[int, TransactionPeers] = {}
        self.batches: dict[int, BatchCommitService] = {}
        self.coordinators = {node: Coordinators(coordinator) for node in (HERE, THERE)}
        self.writers = {node: Writer() for node in (HERE, THERE)}
        for node in (HERE, THERE):
            rpc = self.cluster.member(f"n{node}").rpc
            self.peers[node] = TransactionPeers(rpc, node)
            self.peers[node].serve(self.coordinators[node], self.writers[node])
            self.batches[node] = BatchCommitService(rpc, node)
            self.batches[node].serve(self.coordinators[node])

    def wait(self, replies: list[Any]) -> Any:
        self.cluster.until(lambda: bool(replies))
        (reply,) = replies
        return reply

    def ask(
        self, *partitions: TopicPartition, epoch: int = 1, verify_only: bool = False
    ) -> Mapping[TopicPartition, ApiError | None]:
        replies: list[Any] = []
        self.peers[HERE].ask("id", 7, epoch, partitions, verify_only=verify_only, done=replies.append)
        found: Mapping[TopicPartition, ApiError | None] = self.wait(replies)
        return found

    def write(self, node: NodeId) -> MarkerResults:
        replies: list[Any] = []
        self.peers[HERE].write_markers(node, MARKERS, replies.append)
        found: MarkerResults = self.wait(replies)
        return found

    def commit(self, batch: str) -> BatchDone | ApiError:
        replies: list[Any] = []
        self.batches[HERE].commit("s", batch, MEMBERS, replies.append)
        found: BatchDone | ApiError = self.wait(replies)
        return found


@pytest.mark.parametrize("node", [HERE, THERE])
def test_partitions_are_added_and_verified_at_the_coordinator(node: NodeId) -> None:
    stage = Stage(node)

    added = stage.ask(at("t"))
    verified = stage.ask(at("t"), at("t", 1), verify_only=True)
    fenced = stage.ask(at("t"), epoch=9)

    assert added == {at("t"): None}
    assert verified == {at("t"): None, at("t", 1): ApiError(ErrorKind.TRANSACTION_ABORTABLE)}
    assert fenced == {at("t"): ApiError(ErrorKind.PRODUCER_FENCED, "stale")}
    add, verify, _ = stage.coordinators[node].commands
    assert isinstance(add, AddPartitions)
    assert isinstance(verify, VerifyPartitions)
    assert (add.transactional_id, add.producer, add.client_version) == ("id", (7, 1), 2)


@pytest.mark.parametrize("node", [HERE, THERE])
def test_markers_are_written_by_the_leader(node: NodeId) -> None:
    stage = Stage(HERE)

    results = stage.write(node)

    assert stage.writers[node].markers == MARKERS
    elsewhere = ApiError(ErrorKind.NOT_LEADER, "elsewhere")
    assert results == [{at("a"): None, at("b", 1): elsewhere}, {at("a"): None}]


@pytest.mark.parametrize("node", [HERE, THERE])
def test_a_batch_is_committed_at_the_coordinator_of_its_sink(node: NodeId) -> None:
    stage = Stage(node)

    assert stage.commit("1") == BatchDone(is_repeat=False)
    assert stage.commit("again") == BatchDone(is_repeat=True)
    assert stage.commit("bad") == ApiError(ErrorKind.PRODUCER_FENCED, "s#0")
    command = stage.coordinators[node].commands[0]
    assert isinstance(command, CommitBatch)
    assert (command.sink, command.batch, command.members) == ("s", "1", tuple(MEMBERS))


def test_a_node_that_does_not_reply_costs_an_error_that_can_be_retried() -> None:
    stage = Stage(THERE)
    stage.cluster.world.nodes["n2"].kill()

    assert stage.ask(at("t"))[at("t")] is not None
    error = stage.commit("1")
    assert isinstance(error, ApiError)
    assert error.kind is ErrorKind.COORDINATOR_NOT_AVAILABLE
    assert stage.write(THERE)[0][at("a")] is not None


def test_without_a_coordinator_every_partition_gets_the_reason() -> None:
    loading = ApiError(ErrorKind.COORDINATOR_LOADING)
    stage = Stage(loading)

    assert stage.ask(at("t"), at("u")) == {at("t"): loading, at("u"): loading}
    assert stage.commit("1") == loading


def test_names_of_batches_are_checked_before_anybody_is_asked() -> None:
    stage = Stage(HERE)
    replies: list[Any] = []
    for sink, batch in (("", "1"), ("s#1", "1"), ("x" * 1_001, "1"), ("s", ""), ("s", "x" * 1_001)):
        stage.batches[HERE].commit(sink, batch, [], replies.append)

    assert [reply.kind for reply in replies] == [ErrorKind.INVALID_REQUEST] * 5
    assert stage.coordinators[HERE].commands == []


def older(producer_id: int, coordinator_epoch: int = 0) -> TransactionMarker:
    """The marker of a client whose transactions share an epoch."""
    return TransactionMarker(producer_id, 3, coordinator_epoch, True, 1, (at("a"),))


def test_a_marker_that_its_repetition_has_overtaken_does_not_end_the_next_transaction() -> None:
    order = MarkerOrder()

    assert [order.is_overtaken(older(8), number) for number in (1, 3, 2, 3, 4)] == [
        *(False, False, True),  # 2 was sent before 3
        *(False, False),
    ]
    assert not order.is_overtaken(older(9), 1)
    # Another coordinator counts for itself; one that was deposed is fenced by its epoch.
    assert not order.is_overtaken(older(8, 1), 1)
    assert not order.is_overtaken(older(8, 0), 2)
    assert order.is_overtaken(older(8, 1), 0)


def test_markers_of_transactions_with_their_own_epoch_need_no_order() -> None:
    order = MarkerOrder()

    assert [order.is_overtaken(MARKERS[0], number) for number in (3, 2)] == [False, False]


def test_producers_that_were_not_heard_of_for_long_are_forgotten() -> None:
    order = MarkerOrder(producers_max=2)
    for producer in (1, 2, 3):
        order.is_overtaken(older(producer), 5)

    assert not order.is_overtaken(older(1), 4)
    assert order.is_overtaken(older(3), 4)


def test_a_leader_refuses_markers_that_arrive_late() -> None:
    stage = Stage(HERE)

    def taken(order: int) -> bool:
        replies: list[Any] = []
        question = WriteMarkers((older(8),), order)
        stage.cluster.member("n1").rpc.call(THERE, question, 1_000, replies.append)
        return stage.wait(replies).results[0][0] is None

    assert [taken(2), taken(1)] == [True, False]
    assert len(stage.writers[THERE].markers) == 1
