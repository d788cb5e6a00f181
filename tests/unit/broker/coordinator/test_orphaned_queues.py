"""Queues whose topics are gone, when there are many."""

from itertools import pairwise
from uuid import UUID

from penstock.broker.coordinator.queues import FORGET_MS, QueueService, QueueServicePorts
from penstock.core.metadata import QUEUES_TOPIC, replay
from penstock.core.model import MILLISECOND, Instant, LeaderEpoch, Offset, PartitionIndex, TopicId
from penstock.core.queues import OpenQueue, QueueId, QueueSettings
from tests.unit.broker.coordinator.leader_bench import NODE, LeaderBench, topic_facts

QUEUES = 450
TOPIC_ID, GONE = TopicId(UUID(int=61)), TopicId(UUID(int=62))


class Notices:
    def records_ready(self, queue: QueueId) -> None: ...

    def dead_letters_due(self, queue: QueueId) -> None: ...


def service_of(bench: LeaderBench) -> QueueService:
    """Coordinates queues of a topic that the metadata does not have."""
    service = QueueService(NODE, bench.runtime, bench, bench, QueueServicePorts(Notices()))
    bench.lead(QUEUES_TOPIC, TOPIC_ID, 1)
    service.on_metadata(replay(bench.image, topic_facts(QUEUES_TOPIC, TOPIC_ID, 1)))
    bench.settle()
    (coordinator,) = service
    for number in range(QUEUES):
        coordinator.submit(
            OpenQueue(
                on_reply=lambda _: None,
                queue=QueueId(f"group-{number}", GONE, PartitionIndex(0)),
                leader_epoch=LeaderEpoch(1),
                settings=QueueSettings(),
                log_start=Offset(0),
                log_end=Offset(0),
                start=Offset(0),
            )
        )
    bench.settle()
    return service


def test_many_are_forgotten_not_in_one_turn_of_the_loop() -> None:
    bench = LeaderBench()
    (coordinator,) = service_of(bench)
    left = [len(coordinator.machine.queues)]

    bench.timers.pass_ms(FORGET_MS)
    bench.timers.instant = Instant(bench.timers.instant + FORGET_MS * MILLISECOND)
    while bench.timers.step():
        left.append(len(coordinator.machine.queues))

    assert (left[0], left[-1]) == (QUEUES, 0)
    assert max(before - after for before, after in pairwise(left)) < QUEUES
