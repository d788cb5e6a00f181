"""Settings of groups that are changed while their queues are led."""

from typing import Any

from penstock.broker.queues.peers import ReceiveRequest
from penstock.broker.queues.queue_view import CHANGED_AT_ONCE, QueueView
from penstock.broker.queues.record_reader import RecordReader
from penstock.core.metadata import ALL_BROKERS, ConfigResourceType, ConfigSet, MetadataMachine
from penstock.core.model import Offset
from penstock.core.queues import Demand, OpenQueue, QueueCommand, QueueId, QueueOpened, QueueSettings
from tests.unit.broker.coordinator.leader_bench import LeaderBench, topic_facts
from tests.unit.broker.queues.test_leader_queue import EPOCH, QUEUE, TOPIC, TOPIC_ID

GROUPS = [f"group-{number:03}" for number in range(3 * CHANGED_AT_ONCE)]


class QueueViewBench(LeaderBench):
    """The view of a node that leads one queue for each group, and the queues that are opened."""

    def __init__(self) -> None:
        super().__init__()
        self.lead(TOPIC, TOPIC_ID, 1, EPOCH)
        self.machine = MetadataMachine()
        self.machine.replay(topic_facts(TOPIC, TOPIC_ID, 1))
        self.lease_ms = 1_000
        self.looked_up: list[str] = []
        self.opened: list[str] = []
        anyone: Any = self
        self.view = QueueView(self.runtime, self, anyone, RecordReader(self.runtime), anyone, self)
        self.view.on_metadata(self.machine.image)
        for group in GROUPS:
            queue = QueueId(group, TOPIC_ID, QUEUE.partition)
            request = ReceiveRequest(queue=queue, consumer="c1", records_max=1, wait_ms=500)
            self.view.receive_here(request, lambda _: None)
        self.settle()
        self.take()

    def __call__(self, group_id: str) -> QueueSettings:
        self.looked_up.append(group_id)
        return QueueSettings(lease_ms=self.lease_ms)

    def starts_at_end(self, group_id: str) -> bool:
        return False

    def move(self, queue: QueueId, partition: object) -> None:
        raise AssertionError("there are no dead letters")

    def submit(self, command: QueueCommand) -> None:
        if isinstance(command, OpenQueue):
            assert command.settings.lease_ms == self.lease_ms
            self.opened.append(command.queue.group_id)
            command.on_reply(QueueOpened(Demand(Offset(0), 0)))

    def change(self, kind: ConfigResourceType, name: str) -> None:
        """The node hears that a resource was changed, and nothing else happens yet."""
        self.lease_ms += 1
        self.machine.replay((ConfigSet(kind, name, "queue.visibility.timeout.ms", str(self.lease_ms)),))
        self.view.on_metadata(self.machine.image)

    def take(self) -> list[str]:
        """The groups whose queues were opened."""
        self.looked_up.clear()
        taken, self.opened = self.opened, []
        return taken


def test_only_the_queues_of_a_group_that_was_changed_are_opened_anew() -> None:
    bench = QueueViewBench()

    bench.change(ConfigResourceType.TOPIC, "others")
    bench.settle()
    assert bench.looked_up == []

    bench.change(ConfigResourceType.GROUP, GROUPS[7])
    bench.settle()
    assert bench.looked_up == [GROUPS[7]]
    assert bench.take() == [GROUPS[7]]


def test_all_queues_follow_the_settings_of_brokers_not_in_one_turn() -> None:
    bench = QueueViewBench()

    bench.change(ConfigResourceType.BROKER, ALL_BROKERS)
    assert bench.opened == []
    assert bench.timers.step()
    assert 0 < len(bench.opened) < len(GROUPS)

    bench.settle()
    assert sorted(bench.take()) == GROUPS


def test_what_is_changed_meanwhile_counts_for_all() -> None:
    bench = QueueViewBench()

    bench.change(ConfigResourceType.BROKER, ALL_BROKERS)
    bench.timers.step()
    bench.take()
    bench.change(ConfigResourceType.BROKER, ALL_BROKERS)
    bench.change(ConfigResourceType.GROUP, GROUPS[0])
    bench.settle()

    assert sorted(bench.take()) == GROUPS


def test_a_queue_that_was_closed_does_not_follow() -> None:
    bench = QueueViewBench()

    bench.change(ConfigResourceType.GROUP, GROUPS[0])
    bench.view.stop()
    bench.settle()
    bench.change(ConfigResourceType.GROUP, GROUPS[1])
    bench.settle()

    assert bench.take() == []
