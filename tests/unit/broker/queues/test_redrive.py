"""Dead letters that move back: they are in the dead-letter topic or where they came from, never in both."""

from functools import partial
from typing import Any

import pytest

from penstock.broker.queues.dead_letters import dead_letter_topic
from penstock.broker.queues.move_transaction import RECORDS_MAX, MoveTransaction
from penstock.broker.queues.peers import QueuePeers
from penstock.broker.queues.redrive import RedrivenRecord, RedriveRequest
from penstock.core.metadata import QUEUES_TOPIC, TRANSACTIONS_TOPIC, ConfigResource, ConfigResourceType
from penstock.core.metadata.commands import AlterConfigs
from penstock.core.model import ApiError, ErrorKind, Offset, PartitionIndex, TopicName, TopicPartition
from penstock.core.queues import ATTEMPTS_MAX, REDRIVE_GROUP, QueueId, RejectRecords
from penstock.core.records import Record
from penstock.core.transactions import EndTransaction, InitProducer
from tests.unit.broker.queues.queue_stage import TOPIC, QueueConsumer, QueueStage, consumer_of, values

DEAD = TopicPartition(TopicName(dead_letter_topic(TOPIC)), PartitionIndex(0))


def give_up(consumer: QueueConsumer, count: int) -> None:
    """All that the queue has goes to the dead-letter topic, `count` records."""
    stage = consumer.stage
    while received := consumer.receive(1_000, wait_ms=500):
        consumer.settle(received, RejectRecords, reason="broken")
    stage.until(
        lambda: len(stage.committed(DEAD.topic)) == count if stage.knows(stage.at(), DEAD.topic) else False,
        60,
    )


def redrive(stage: QueueStage, *offsets: int, node: int = 1, **fields: Any) -> Any:
    """What the node returns, asked again while it is busy with the transaction before."""
    request = RedriveRequest(partition=DEAD, offsets=tuple(map(Offset, offsets)), **fields)
    return stage.ask(lambda done: stage.at(node).redriver.redrive(request, done))


def moved(reply: tuple[RedrivenRecord, ...] | ApiError) -> list[int]:
    assert isinstance(reply, tuple), reply
    assert not [each for each in reply if isinstance(each.target, ApiError)]
    return [each.offset for each in reply]


def texts(records: list[Record]) -> list[str]:
    return [(record.value or b"").decode() for record in records]


def test_a_dead_letter_goes_back_to_where_it_came_from_and_starts_anew() -> None:
    consumer = consumer_of(QueueStage())
    stage = consumer.stage
    stage.produce("bad", trace="t1")
    give_up(consumer, 1)

    (each,) = redrive(stage)

    assert each == RedrivenRecord(Offset(0), TopicPartition(TopicName(TOPIC), PartitionIndex(0)))
    (received,) = consumer.receive(wait_ms=1_000)
    assert (received.attempt, *values([received])) == (1, "bad")
    headers = dict(received.record.headers)
    assert (headers["trace"], headers["penstock-error"]) == (b"t1", b"broken")
    assert moved(redrive(stage)) == []


def test_dead_letters_are_found_wherever_other_new_queues_begin() -> None:
    consumer = consumer_of(QueueStage())
    stage = consumer.stage
    stage.produce("bad")
    give_up(consumer, 1)
    group = ConfigResource(ConfigResourceType.GROUP, REDRIVE_GROUP)
    stage.ask(partial(stage.at().controller.submit, AlterConfigs(group, (("queue.start", "latest"),))))

    assert moved(redrive(stage)) == [0]


def test_chosen_dead_letters_leave_the_others_where_they_are() -> None:
    consumer = consumer_of(QueueStage())
    stage = consumer.stage
    stage.produce("a", "b", "c", "d")
    give_up(consumer, 4)

    assert moved(redrive(stage, 1, 3)) == [1, 3]
    assert sorted(values(consumer.receive(wait_ms=1_000))) == ["b", "d"]
    assert moved(redrive(stage, 1, 99)) == []
    assert moved(redrive(stage)) == [0, 2]


def test_a_chosen_dead_letter_may_be_behind_many_others() -> None:
    consumer = consumer_of(QueueStage())
    stage = consumer.stage
    for _ in range(5):
        stage.produce(*["x"] * 500)
    stage.produce("last")
    give_up(consumer, 2_501)

    last = stage.committed(DEAD.topic)[-1].offset
    assert moved(redrive(stage, last)) == [last]
    assert values(consumer.receive(wait_ms=1_000)) == ["last"]


def test_all_dead_letters_are_moved_each_once_in_portions_that_the_topic_takes() -> None:
    consumer = consumer_of(QueueStage())
    stage = consumer.stage
    sent = [f"{number}-".ljust(3_000, "x") for number in range(250)]
    for start in range(0, 250, 50):
        stage.produce(*sent[start : start + 50])
    give_up(consumer, 250)

    portions = []
    while got := moved(redrive(stage)):
        portions.append(len(got))

    assert sum(portions) == 250
    assert max(portions) < 100, "256 KiB is one batch"
    stage.until(lambda: sorted(texts(stage.committed(TOPIC))) == sorted(sent + sent))


def test_another_topic_can_be_named_and_must_exist() -> None:
    consumer = consumer_of(QueueStage())
    stage = consumer.stage
    stage.produce("bad")
    give_up(consumer, 1)

    refused = redrive(stage, to_topic="elsewhere")
    assert isinstance(refused, ApiError)
    assert refused.kind is ErrorKind.UNKNOWN_PARTITION
    assert isinstance(redrive(stage, to_topic=DEAD.topic), ApiError)

    stage.create("elsewhere")
    (each,) = redrive(stage, to_topic="elsewhere")
    assert each.target.topic == "elsewhere"
    stage.until(lambda: texts(stage.committed("elsewhere")) == ["bad"])


def test_a_record_without_an_origin_stays_and_is_named() -> None:
    consumer = consumer_of(QueueStage())
    stage = consumer.stage
    stage.produce("bad")
    give_up(consumer, 1)
    stage.produce("stray", topic=DEAD.topic)

    first, stray = redrive(stage)
    assert isinstance(first.target, TopicPartition)
    assert isinstance(stray.target, ApiError)
    assert stray.target.kind is ErrorKind.INVALID_REQUEST
    (again,) = redrive(stage)
    assert again == stray


def test_nothing_is_moved_to_an_internal_topic() -> None:
    consumer = consumer_of(QueueStage())
    stage = consumer.stage
    stage.produce("bad")
    give_up(consumer, 1)
    stage.produce("forged", topic=DEAD.topic, penstock_origin_topic=QUEUES_TOPIC)

    first, forged = redrive(stage)
    assert isinstance(first.target, TopicPartition)
    assert forged.target.kind is ErrorKind.INVALID_TOPIC_NAME
    (named,) = redrive(stage, to_topic=QUEUES_TOPIC)
    assert named.target.kind is ErrorKind.INVALID_TOPIC_NAME


def test_whoever_may_not_write_there_moves_nothing() -> None:
    consumer = consumer_of(QueueStage())
    stage = consumer.stage
    stage.produce("bad")
    give_up(consumer, 1)

    (refused,) = redrive(stage, may_write=lambda topic: topic != TOPIC)
    assert refused.target.kind is ErrorKind.NOT_AUTHORIZED
    assert moved(redrive(stage)) == [0]


def test_a_time_to_live_ends_no_dead_letter() -> None:
    consumer = consumer_of(QueueStage())
    stage = consumer.stage
    stage.produce("bad", penstock_ttl_ms="5000")
    give_up(consumer, 1)
    stage.pass_ms(10_000)

    assert moved(redrive(stage)) == [0]
    assert values(consumer.receive(wait_ms=1_000)) == ["bad"]


def test_two_redrives_at_once_move_every_dead_letter_once() -> None:
    consumer = consumer_of(QueueStage(nodes=3))
    stage = consumer.stage
    stage.produce(*[str(number) for number in range(300)])
    give_up(consumer, 300)
    replies: list[Any] = []
    for node in (1, 1, 2):
        stage.at(node).redriver.redrive(RedriveRequest(partition=DEAD), replies.append)
    stage.until(lambda: len(replies) == 3)

    offsets = [each.offset for reply in replies if isinstance(reply, tuple) for each in reply]
    assert len(offsets) == len(set(offsets))
    errors = [reply for reply in replies if isinstance(reply, ApiError)]
    assert [error.kind for error in errors] == [ErrorKind.CONCURRENT_TRANSACTIONS]
    while got := moved(redrive(stage)):
        offsets += got
    assert len(offsets) == 300
    stage.until(lambda: len(stage.committed(TOPIC)) == 600)


def test_what_was_acknowledged_in_a_redrive_that_never_ended_is_still_a_dead_letter() -> None:
    consumer = consumer_of(QueueStage())
    stage = consumer.stage
    stage.produce("bad")
    give_up(consumer, 1)
    peers = stage.nodes[1].services._queue_peers
    ended: list[EndTransaction] = []

    def instead_of_the_end(command: InitProducer | EndTransaction) -> None:
        if isinstance(command, EndTransaction):
            ended.append(command)
        else:
            QueuePeers.submit_transaction(peers, command)

    peers.submit_transaction = instead_of_the_end  # type: ignore[method-assign]
    stage.at().redriver.redrive(RedriveRequest(partition=DEAD), lambda _: None)
    stage.until(lambda: bool(ended))
    assert ended[0].is_commit
    stage.nodes[1].backend = None
    stage.world.nodes["n1"].kill()
    stage.world.nodes["n1"].start()
    stage.until(lambda: stage.nodes[1].backend is not None)
    assert moved(redrive(stage)) == [], "the transaction decides"
    stage.pass_ms(60_000)

    assert moved(redrive(stage)) == [0]
    stage.until(lambda: texts(stage.committed(TOPIC)) == ["bad", "bad"])


@pytest.mark.parametrize("topic", [TOPIC, DEAD.topic, QUEUES_TOPIC, TRANSACTIONS_TOPIC, "the node itself"])
def test_a_redrive_survives_whoever_fails_in_the_middle_of_it(topic: str) -> None:
    stage = QueueStage(nodes=3)
    consumer = QueueConsumer(stage, stage.create(replicas=(1, 2, 3)))
    stage.create(DEAD.topic, replicas=(2, 3, 1))
    stage.produce("bad", "worse")
    give_up(consumer, 2)
    assert moved(redrive(stage, 0, node=3)) == [0]

    victim = 3 if topic == "the node itself" else stage.leader_of(topic)
    asked = 3 if topic == "the node itself" else victim % 3 + 1
    replies: list[Any] = []
    stage.at(asked).redriver.redrive(RedriveRequest(partition=DEAD), replies.append)
    stage.pass_ms(3)
    assert not replies, "the redrive is under way"
    stage.nodes[victim].backend = None
    stage.world.nodes[f"n{victim}"].kill()
    if asked != victim:
        stage.until(lambda: bool(replies), 60)
    stage.pass_ms(10_000)
    stage.world.nodes[f"n{victim}"].start()
    stage.until(lambda: stage.nodes[victim].backend is not None)

    for _ in range(60):
        # Until the lease has ended, or the transaction, there is nothing to move.
        redrive(stage, node=asked)
        if len(stage.committed(TOPIC)) == 4:
            break
        stage.pass_ms(1_000)
    stage.pass_ms(60_000)
    assert moved(redrive(stage, node=asked)) == []
    assert sorted(texts(stage.committed(TOPIC))) == ["bad", "bad", "worse", "worse"]


def redrive_queue(consumer: QueueConsumer) -> QueueConsumer:
    """The queue of the dead-letter topic that redrives have."""
    stage = consumer.stage
    topic = stage.at().controller.image.topic(DEAD.topic)
    assert topic is not None
    found = QueueConsumer(stage, topic.id)
    found.queue = QueueId(REDRIVE_GROUP, topic.id, DEAD.partition)
    return found


def test_a_configuration_that_changes_has_no_effect_on_dead_letters() -> None:
    consumer = consumer_of(QueueStage())
    stage = consumer.stage
    stage.produce("bad")
    give_up(consumer, 1)
    redrive(stage, may_write=lambda _topic: False)
    queue = redrive_queue(consumer)
    before = queue.describe().stored.settings

    other = ConfigResource(ConfigResourceType.GROUP, "others")
    stage.ask(partial(stage.at().controller.submit, AlterConfigs(other, (("queue.retries.max", "7"),))))
    stage.pass_ms(5_000)
    redrive(stage, 99)

    assert queue.describe().stored.settings == before
    assert before.deliveries_max == ATTEMPTS_MAX


def test_a_redrive_that_is_aborted_counts_no_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = consumer_of(QueueStage())
    stage = consumer.stage
    stage.produce("bad")
    give_up(consumer, 1)
    failed = ApiError(ErrorKind.NOT_ENOUGH_REPLICAS)
    monkeypatch.setattr(MoveTransaction, "append", lambda *given: given[-1](failed))
    for _ in range(3):
        assert redrive(stage) == failed
        stage.pass_ms(500)
    monkeypatch.undo()

    (received,) = redrive_queue(consumer).receive(wait_ms=1_000)

    assert received.attempt == 1


def test_dead_letters_that_can_go_nowhere_do_not_hold_up_those_behind_them() -> None:
    consumer = consumer_of(QueueStage())
    stage = consumer.stage
    stage.produce("bad")
    stage.create(DEAD.topic)
    stage.produce(*["stray"] * (2 * RECORDS_MAX + 10), topic=DEAD.topic)
    strays = len(stage.committed(DEAD.topic))
    give_up(consumer, strays + 1)

    reply = redrive(stage)

    last = reply[-1]
    assert (last.offset, last.target) == (strays, TopicPartition(TopicName(TOPIC), PartitionIndex(0)))
    assert [type(each.target) for each in reply[:-1]] == [ApiError] * strays
    # Nobody has them, and none counts as delivered.
    received = redrive_queue(consumer).receive(1_000, wait_ms=1_000)
    assert {each.attempt for each in received} == {1}
    assert len(received) == strays
