"""`cleanup.policy=consumed` deletes nothing unless it knows of every queue of the topic."""

from collections.abc import Mapping
from functools import partial
from typing import Any
from uuid import UUID

import pytest

from penstock.broker.coordinator import partition_of
from penstock.broker.coordinator.queues import QueueService, key_of
from penstock.broker.lease import ENDED
from penstock.broker.queues.consumed_cleanup import ConsumedCleanup
from penstock.broker.queues.queue_admin import QueuesDescribed
from penstock.core.metadata import (
    QUEUES_TOPIC,
    ConfigResource,
    ConfigResourceType,
    ConfigSet,
    MetadataImage,
    MetadataMachine,
    TopicCreated,
)
from penstock.core.metadata.commands import AlterConfigs
from penstock.core.model import ApiError, ErrorKind, NodeId, TopicId, TopicName
from penstock.core.queues import QueueCommand, QueueId
from tests.support.manual_runtime import HandSyncs, HandTimers, hand_runtime
from tests.unit.broker.queues.queue_stage import STATIC, TOPIC, QueueConsumer, QueueStage, consumer_of


@pytest.fixture
def consumer(monkeypatch: pytest.MonkeyPatch) -> QueueConsumer:
    """Has finished everything; the group `others` has finished nothing, and another coordinator."""
    monkeypatch.setitem(STATIC, "offsets.topic.num.partitions", "8")
    consumer = consumer_of(QueueStage())
    stage = consumer.stage
    policy = AlterConfigs(ConfigResource(ConfigResourceType.TOPIC, TOPIC), (("cleanup.policy", "consumed"),))
    stage.ask(partial(stage.at().controller.submit, policy))
    stage.produce("a", "b")
    other = others_of(consumer)
    other.receive(lease_ms=600_000)
    consumer.settle(consumer.receive())
    return consumer


def others_of(consumer: QueueConsumer) -> QueueConsumer:
    others = QueueConsumer(consumer.stage, consumer.queue.topic_id)
    others.queue = consumer.queue._replace(group_id="others")
    return others


def queues_of(consumer: QueueConsumer) -> QueueService:
    found = consumer.stage.nodes[1].services._queues
    assert found is not None
    return found


def described(consumer: QueueConsumer) -> QueuesDescribed:
    reply = consumer.stage.ask(partial(consumer.stage.at().queue_admin.describe, (), ()))
    assert isinstance(reply, QueuesDescribed)
    return reply


def log_start(consumer: QueueConsumer) -> int:
    consumer.stage.pass_ms(25_000)
    return consumer.stage.led(TOPIC).log.start


def refuse(consumer: QueueConsumer, queue: QueueId, kind: ErrorKind) -> None:
    service = queues_of(consumer)

    def submit(command: QueueCommand) -> None:
        if command.queue == queue:
            command.on_reply(ApiError(kind))
        else:
            QueueService.submit(service, command)

    service.submit = submit  # type: ignore[method-assign]


@pytest.mark.parametrize(
    "kind", [ErrorKind.NOT_COORDINATOR, ErrorKind.COORDINATOR_LOADING, ErrorKind.COORDINATOR_NOT_AVAILABLE]
)
def test_nothing_is_deleted_while_a_queue_cannot_be_described(
    consumer: QueueConsumer, kind: ErrorKind
) -> None:
    refuse(consumer, others_of(consumer).queue, kind)

    assert described(consumer).error == ApiError(kind)
    assert log_start(consumer) == 0


def test_a_queue_that_was_forgotten_meanwhile_is_left_out(consumer: QueueConsumer) -> None:
    refuse(consumer, others_of(consumer).queue, ErrorKind.UNKNOWN_GROUP)

    found = described(consumer)

    assert found.error is None
    assert [each.stored.queue for each in found.queues] == [consumer.queue]


def test_nothing_is_deleted_while_a_partition_of_queues_has_no_coordinator(consumer: QueueConsumer) -> None:
    service, others = queues_of(consumer), others_of(consumer).queue
    topic = consumer.stage.at().controller.image.topic(QUEUES_TOPIC)
    assert topic is not None
    count = len(topic.partitions)
    index = partition_of(key_of(others), count)
    assert partition_of(key_of(consumer.queue), count) != index
    lost = service._coordinators._led.pop(index)

    assert described(consumer).error is not None
    assert log_start(consumer) == 0

    service._coordinators._led[index] = lost
    assert described(consumer).error is None
    refuse(consumer, others, ErrorKind.UNKNOWN_GROUP)
    assert log_start(consumer) == 2


def test_a_node_without_a_lease_does_not_say_that_there_are_no_queues(consumer: QueueConsumer) -> None:
    consumer.stage.nodes[1].services.member.lease.until = ENDED

    replies: list[object] = []
    queues_of(consumer).describe(("nobody",), (), replies.append)

    assert [type(each) for each in replies] == [ApiError]


def test_only_topics_that_were_changed_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    machine, looked_at, config = MetadataMachine(), list[str](), MetadataImage.config

    def look(image: MetadataImage, kind: ConfigResourceType, name: str) -> Mapping[str, str]:
        looked_at.append(name)
        return config(image, kind, name)

    def change(name: str, policy: str) -> None:
        machine.replay((ConfigSet(ConfigResourceType.TOPIC, name, "cleanup.policy", policy),))
        looked_at.clear()
        cleanup.on_metadata(machine.image)

    timers: Any = HandTimers()
    nobody: Any = None
    cleanup = ConsumedCleanup(hand_runtime(timers, HandSyncs()), NodeId(1), nobody, nobody, nobody)
    for number in range(10):
        machine.replay((TopicCreated(TopicName(f"topic-{number}"), TopicId(UUID(int=1 + number))),))
        change(f"topic-{number}", "consumed" if number % 2 else "delete")
    monkeypatch.setattr(MetadataImage, "config", look)

    change("topic-4", "consumed")
    assert looked_at == ["topic-4"]
    change("topic-5", "delete")

    assert sorted(cleanup.topics) == ["topic-1", "topic-3", "topic-4", "topic-7", "topic-9"]
