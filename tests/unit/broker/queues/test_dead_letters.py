"""Records that a queue gives up: they are in the dead-letter topic or in the queue, never in both."""

from dataclasses import replace
from hashlib import sha256

import pytest

from penstock.broker.configs import ConfigValues
from penstock.broker.coordinator.queues import REMIND_MS
from penstock.broker.queues.dead_letters import dead_letter_topic
from penstock.broker.topics import NewTopic
from penstock.core.metadata import (
    QUEUES_TOPIC,
    TRANSACTIONS_TOPIC,
    ConfigResource,
    ConfigResourceType,
    CreatedTopic,
)
from penstock.core.model import ApiError, ErrorKind
from penstock.core.queues import RejectRecords, ReleaseRecords
from penstock.core.transactions import EndTransaction, InitProducer
from tests.unit.broker.queues.queue_stage import TOPIC, QueueConsumer, QueueStage, consumer_of, values

DEAD = dead_letter_topic(TOPIC)


def is_moved(consumer: QueueConsumer, below: int) -> bool:
    described = consumer.describe()
    return described.finished_below == below and described.moving == 0


def test_after_the_fourth_failure_a_record_is_moved_with_the_reason() -> None:
    consumer = consumer_of(QueueStage())
    stage = consumer.stage
    stage.produce("bad", "good", trace="t1")
    attempts = []
    for _ in range(4):
        (received,) = consumer.receive(1, wait_ms=1_000)
        attempts.append((received.attempt, *values([received])))
        consumer.settle([received], ReleaseRecords, delay_ms=0, reason="no such account")

    assert attempts == [(1, "bad"), (2, "bad"), (3, "bad"), (4, "bad")]
    stage.until(lambda: is_moved(consumer, below=1))
    (letter,) = stage.committed(DEAD)
    assert (letter.value, letter.key) == (b"bad", None)
    headers = dict(letter.headers)
    assert headers["trace"] == b"t1"
    assert (headers["penstock-origin-topic"], headers["penstock-origin-offset"]) == (TOPIC.encode(), b"0")
    assert (headers["penstock-attempts"], headers["penstock-error"]) == (b"4", b"no such account")
    assert values(consumer.receive()) == ["good"]
    assert stage.nodes[1].services.queue_metrics.dead_letters.of(TOPIC).count == 1


def test_many_dead_letters_are_moved_each_once() -> None:
    consumer = consumer_of(QueueStage())
    stage = consumer.stage
    sent = [f"{number}-".ljust(3_000, "x") for number in range(250)]
    for start in range(0, 250, 50):
        stage.produce(*sent[start : start + 50])
    received = consumer.receive(1_000, wait_ms=1_000, bytes_max=100 << 20)
    while len(received) < 250:
        received += consumer.receive(1_000, wait_ms=1_000, bytes_max=100 << 20)

    assert set(consumer.settle(received, RejectRecords)) == {None}

    stage.until(lambda: is_moved(consumer, below=250), 60)
    moved = [(record.value or b"").decode() for record in stage.committed(DEAD)]
    assert sorted(moved) == sorted(sent)


@pytest.mark.parametrize("topic", [TOPIC, QUEUES_TOPIC, TRANSACTIONS_TOPIC])
def test_a_move_survives_whoever_fails_in_the_middle_of_it(topic: str) -> None:
    stage = QueueStage(nodes=3)
    consumer = QueueConsumer(stage, stage.create(replicas=(1, 2, 3)))
    stage.produce("bad", "worse")
    stage.create(DEAD, replicas=(2, 3, 1))
    received = consumer.receive()
    consumer.settle(received[:1], RejectRecords)
    stage.until(lambda: is_moved(consumer, below=1))

    victim = stage.leader_of(topic)
    consumer.node = victim % 3 + 1
    consumer.settle(received[1:], RejectRecords)
    stage.pass_ms(3)
    assert stage.unfinished(consumer.queue) == [1], "the move is under way"
    stage.nodes[victim].backend = None
    stage.world.nodes[f"n{victim}"].kill()
    stage.pass_ms(REMIND_MS)
    stage.world.nodes[f"n{victim}"].start()

    stage.until(lambda: stage.nodes[victim].backend is not None)
    stage.until(lambda: is_moved(consumer, below=2), 60)
    assert [record.value for record in stage.committed(DEAD)] == [b"bad", b"worse"]


def test_a_transaction_that_nobody_ends_is_aborted_long_before_its_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    consumer = consumer_of(QueueStage())
    stage = consumer.stage
    stage.produce("bad")
    peers = stage.nodes[1].services._queue_peers
    submit, lost = peers.submit_transaction, list[EndTransaction]()

    def lose_the_first_end(command: InitProducer | EndTransaction) -> None:
        if isinstance(command, EndTransaction) and (not lost or command.producer == lost[0].producer):
            lost.append(command)
            command.on_reply(ApiError(ErrorKind.COORDINATOR_NOT_AVAILABLE))
        else:
            submit(command)

    monkeypatch.setattr(peers, "submit_transaction", lose_the_first_end)
    consumer.settle(consumer.receive(), RejectRecords)
    stage.until(lambda: bool(lost))

    stage.until(lambda: is_moved(consumer, below=1), 3 * REMIND_MS // 1_000)
    assert [record.value for record in stage.committed(DEAD)] == [b"bad"]


@pytest.mark.parametrize("is_done", [False, True])
def test_a_commit_is_repeated_while_the_coordinator_of_transactions_moves(
    monkeypatch: pytest.MonkeyPatch, is_done: bool
) -> None:
    consumer = consumer_of(QueueStage())
    stage = consumer.stage
    stage.produce("bad")
    peers = stage.nodes[1].services._queue_peers
    submit, ends = peers.submit_transaction, list[EndTransaction]()

    def lose_one_reply(command: InitProducer | EndTransaction) -> None:
        is_lost = isinstance(command, EndTransaction) and not ends
        if isinstance(command, EndTransaction):
            ends.append(command)
        if not is_lost:
            submit(command)
            return
        reply = command.on_reply
        if is_done:
            submit(replace(command, on_reply=lambda _: reply(ApiError(ErrorKind.NOT_COORDINATOR))))
        else:
            reply(ApiError(ErrorKind.COORDINATOR_LOADING))

    monkeypatch.setattr(peers, "submit_transaction", lose_one_reply)
    consumer.settle(consumer.receive(), RejectRecords)

    moved = stage.nodes[1].services.queue_metrics.dead_letters.of(TOPIC)
    stage.until(lambda: moved.count == 1)
    stage.until(lambda: is_moved(consumer, below=1))
    assert [(end.producer, end.is_commit) for end in ends] == [(ends[0].producer, True)] * 2
    assert [record.value for record in stage.committed(DEAD)] == [b"bad"]


def test_a_dead_letter_that_is_too_large_for_its_topic_holds_up_no_other() -> None:
    consumer = consumer_of(QueueStage())
    stage = consumer.stage
    limited = NewTopic(DEAD, 1, configs=(("max.message.bytes", "2000"),))
    (created,) = stage.ask(lambda done: stage.at(1).topics.create([limited], done))
    assert isinstance(created, CreatedTopic), created
    # Compressed, too.
    too_large = "".join(sha256(b"%d" % number).hexdigest() for number in range(150))
    stage.produce("x" * 9_000, too_large, "good")

    consumer.settle(consumer.receive(bytes_max=1 << 20), RejectRecords)

    stage.until(lambda: stage.unfinished(consumer.queue) == [1])
    stage.until(lambda: stage.led(DEAD).log.last_stable_offset == stage.led(DEAD).log.end)
    assert [record.value for record in stage.committed(DEAD)] == [b"x" * 9_000, b"good"]

    wider = ConfigValues(ConfigResource(ConfigResourceType.TOPIC, DEAD), (("max.message.bytes", "20000"),))
    stage.ask(lambda done: stage.at(1).configs.alter([wider], done))
    stage.until(lambda: is_moved(consumer, below=3))
    assert len(stage.committed(DEAD)) == 3
