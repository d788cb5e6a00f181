"""A start with many logs: they are opened in slices, and what is decided meanwhile is not missed."""

from uuid import UUID

import pytest

from penstock.broker.partitions import replica_manager
from penstock.broker.topics import NewTopic
from penstock.core.metadata import CreateTopic, DeleteTopic, ReplicaAssignment
from penstock.core.model import SECOND, NodeId, PartitionIndex, TopicId
from penstock.node import NodeServices, services
from penstock.runtime import Callback
from penstock.runtime.sliced_work import Slices
from penstock.storage.log import RecoveryReport
from tests.unit.broker.partitions.replicas_bench import ReplicasBench
from tests.unit.broker.topics.test_topics import Stage

MANY, GONE, NEW = (TopicId(UUID(int=number)) for number in (81, 82, 83))


@pytest.fixture
def few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_manager, "OPENED_AT_ONCE", 3)
    monkeypatch.setattr(replica_manager, "OPENED_PER_SLICE", 2)
    # One slice in each turn of the loop.
    monkeypatch.setattr(services, "START_TURN_NS", 0)


def create(bench: ReplicasBench, name: str, topic_id: TopicId, count: int) -> None:
    placed = [ReplicaAssignment(PartitionIndex(index), (NodeId(1),)) for index in range(count)]
    bench.perform(CreateTopic(name, topic_id, assignments=tuple(placed)))
    bench[1].settle()


@pytest.mark.usefixtures("few_at_a_time")
def test_what_was_decided_while_logs_were_opened_is_done_afterwards() -> None:
    bench = ReplicasBench()
    create(bench, "many", MANY, 10)
    create(bench, "gone", GONE, 2)
    old = bench.image
    broker = bench.brokers[1] = bench._broker(1, bench[1].disk.copy())
    reports: list[RecoveryReport] = []
    slices = broker.partitions.open_in_slices(old, broker.directory, reports)
    for _ in range(8):
        next(slices)
    assert 0 < len(reports) < 12

    del bench.brokers[1]
    bench.perform(DeleteTopic(topic_id=GONE))
    bench.perform(CreateTopic("new", NEW, assignments=(ReplicaAssignment(PartitionIndex(0), (NodeId(1),)),)))
    bench.brokers[1] = broker
    for _ in slices:
        pass
    broker.partitions.on_metadata(bench.image)
    broker.settle()

    assert len(reports) == 12
    assert [broker.partitions.find("many", index) is not None for index in range(10)] == [True] * 10
    assert broker.partitions.find("gone", 0) is None
    assert broker.partitions.find("new", 0) is not None


@pytest.mark.usefixtures("few_at_a_time")
def test_a_node_with_many_logs_gets_ready_after_a_kill() -> None:
    stage = Stage()
    stage.create(NewTopic("many", 20))

    stage.node.kill()
    del stage.backend
    stage.start()

    assert [stage.backend.partitions.find("many", index) is not None for index in range(20)] == [True] * 20


@pytest.mark.usefixtures("few_at_a_time")
def test_a_node_that_stops_while_it_opens_logs_opens_no_more_and_marks_nothing_as_clean(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = Stage()
    stage.create(NewTopic("many", 20))
    stage.node.kill()
    del stage.backend
    opened: list[int] = []
    reports: list[int] = []
    open_the_rest = NodeServices._open_the_rest

    def stopped_half_way(self: NodeServices, slices: Slices, then: Callback) -> Slices:
        for number, _ in enumerate(open_the_rest(self, slices, then)):
            if number == 15:
                opened.append(len(self.partitions))
                self.close()
                self.partitions._replicas.clear()
            yield
        reports.append(opened[0] + len(self.partitions))

    monkeypatch.setattr(NodeServices, "_open_the_rest", stopped_half_way)
    stage.node.start()
    stage.world.run(10 * SECOND)

    assert 0 < opened[0] < 20
    assert reports == [opened[0]]
    assert not hasattr(stage, "backend")
    assert not stage.node.disk.exists("meta/clean")
