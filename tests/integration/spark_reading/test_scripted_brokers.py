"""Logs and moods that our own broker does not have, or not when a test wants them."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from uuid import UUID

import pytest

from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.fetch import FetchRequest, FetchResponse
from penstock.core.records import ControlRecord, ControlType, Record, write_batch, write_control_batch
from penstock.spark.errors import DataLost, PipelineError
from penstock.spark.reading import OffsetRange
from penstock.spark.reading.reader import SocketReader
from penstock.spark.reading.spans import ReaderOptions
from tests.integration.spark_reading.conftest import OpenReader
from tests.integration.spark_reading.scripted import TOPIC, ScriptedBroker, fetched, refusing
from tests.integration.spark_reading.topics import offsets_of

IMPATIENT = ReaderOptions(timeout_ms=1500, wait_ms=50)
Scripted = Callable[..., ScriptedBroker]


@pytest.fixture
def scripted() -> Iterator[Scripted]:
    brokers: list[ScriptedBroker] = []

    def start(batches: list[bytearray], **how: int) -> ScriptedBroker:
        brokers.append(ScriptedBroker(batches, **how))
        return brokers[-1]

    yield start
    for broker in brokers:
        broker.close()


def batch_at(offset: int, records: int = 10, producer: int = -1) -> bytearray:
    return write_batch(
        [Record(0, 1000, None, b"value")] * records,
        base_offset=offset,
        producer_id=producer,
        producer_epoch=0,
        base_sequence=0,
        transactional=producer >= 0,
    )


def marker_at(offset: int, producer: int, control_type: ControlType) -> bytearray:
    return write_control_batch(ControlRecord(offset, 1000, control_type, producer, 0, 0))


def plain(count: int = 5) -> list[bytearray]:
    """Batches of ten records, back to back."""
    return [batch_at(10 * number) for number in range(count)]


def transactions() -> list[bytearray]:
    return [
        batch_at(0, producer=1),
        batch_at(10, producer=2),
        marker_at(20, 1, ControlType.ABORT),
        batch_at(21, producer=1),
        marker_at(31, 2, ControlType.COMMIT),
        marker_at(32, 1, ControlType.COMMIT),
        batch_at(33, 7),
        batch_at(40, producer=3),
        marker_at(50, 3, ControlType.ABORT),
    ]


def test_aborted_records_and_markers_are_left_out(scripted: Scripted, open_one: OpenReader) -> None:
    broker = scripted(transactions())
    broker.aborted = [(1, 0), (3, 40)]

    offsets = offsets_of(open_one(broker.bootstrap, ReaderOptions()), OffsetRange(TOPIC, 0, 0, 51))

    assert offsets == [*range(10, 20), *range(21, 31), *range(33, 40)]


def test_uncommitted_reading_leaves_out_nothing_but_markers(scripted: Scripted, open_one: OpenReader) -> None:
    broker = scripted(transactions())
    broker.aborted = [(1, 0), (3, 40)]

    offsets = offsets_of(
        open_one(broker.bootstrap, ReaderOptions(committed_only=False)), OffsetRange(TOPIC, 0, 0, 51)
    )

    assert offsets == [*range(20), *range(21, 31), *range(33, 50)]


@pytest.mark.parametrize(("start", "end"), [(40, 51), (45, 50), (50, 51), (31, 33)])
def test_a_span_without_any_record_to_show_ends_all_the_same(
    scripted: Scripted, open_one: OpenReader, start: int, end: int
) -> None:
    broker = scripted(transactions())
    broker.aborted = [(3, 40)]

    assert offsets_of(open_one(broker.bootstrap, IMPATIENT), OffsetRange(TOPIC, 0, start, end)) == []


def test_a_span_inside_a_gap_is_empty(scripted: Scripted, open_one: OpenReader) -> None:
    broker = scripted([batch_at(0), batch_at(30)])
    reader = open_one(broker.bootstrap, ReaderOptions(wait_ms=50))

    assert offsets_of(reader, OffsetRange(TOPIC, 0, 12, 25)) == []
    assert offsets_of(reader, OffsetRange(TOPIC, 0, 8, 32)) == [8, 9, 30, 31]


def test_a_log_whose_last_records_fell_to_compaction_ends(scripted: Scripted) -> None:
    broker = scripted([batch_at(0), batch_at(30)])
    broker.high_watermark = 60
    reader = SocketReader(broker.bootstrap, IMPATIENT)

    assert offsets_of(reader, OffsetRange(TOPIC, 0, 5, 60)) == [*range(5, 10), *range(30, 40)]
    reader.close()


def test_an_open_transaction_is_waited_for_and_then_named(scripted: Scripted, open_one: OpenReader) -> None:
    broker = scripted([batch_at(0), batch_at(10, producer=1)])
    broker.last_stable_offset = 10
    reader = open_one(broker.bootstrap, IMPATIENT)

    with pytest.raises(PipelineError, match=r"scripted/0: no progress at offset 10 .* transaction"):
        offsets_of(reader, OffsetRange(TOPIC, 0, 0, 20))


@pytest.mark.parametrize(
    "code",
    [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.UNKNOWN_LEADER_EPOCH],
)
def test_a_leader_that_moves_is_looked_up_again(
    scripted: Scripted, open_one: OpenReader, code: ErrorCode
) -> None:
    broker = scripted(plain())
    broker.answer_batches_max = 2
    broker.whims = [refusing(code)]

    assert offsets_of(open_one(broker.bootstrap, ReaderOptions()), OffsetRange(TOPIC, 0, 0, 50)) == list(
        range(50)
    )


def test_a_connection_that_breaks_is_made_again(scripted: Scripted) -> None:
    broker = scripted(plain())
    broker.answer_batches_max = 1
    count = itertools.count()

    def broken(request: FetchRequest) -> FetchResponse | bytes | None:
        if next(count) % 2:
            return None if next(count) % 4 else b"\x00\x00\x00\x40half of an answer"
        answer = broker.from_log(request)
        broker.whims.append(broken)
        return answer

    broker.whims = [broken]
    reader = SocketReader(broker.bootstrap, ReaderOptions(request_ms=300))

    assert offsets_of(reader, OffsetRange(TOPIC, 0, 0, 50)) == list(range(50))
    reader.close()


def test_a_broker_that_throttles_is_asked_again(scripted: Scripted, open_one: OpenReader) -> None:
    broker = scripted(plain())
    broker.whims = [lambda _: fetched((), throttle_ms=10)] * 2

    assert offsets_of(open_one(broker.bootstrap, ReaderOptions()), OffsetRange(TOPIC, 0, 0, 50)) == list(
        range(50)
    )


def test_a_broker_without_topic_ids_is_read(scripted: Scripted, open_one: OpenReader) -> None:
    broker = scripted(plain(), fetch_version_max=11)

    assert offsets_of(open_one(broker.bootstrap, ReaderOptions()), OffsetRange(TOPIC, 0, 0, 50)) == list(
        range(50)
    )


def test_a_topic_of_the_same_name_is_not_read_on(scripted: Scripted) -> None:
    broker = scripted(plain())
    broker.answer_batches_max = 2
    reader = SocketReader(broker.bootstrap, IMPATIENT)
    read = reader.read(OffsetRange(TOPIC, 0, 0, 50))

    def recreated(request: FetchRequest) -> FetchResponse | bytes | None:
        broker.topic_id = UUID(int=8)
        return refusing(ErrorCode.UNKNOWN_TOPIC_ID)(request)

    broker.whims = [broker.from_log, recreated]
    with pytest.raises(DataLost) as caught:
        list(read)

    assert (caught.value.start, caught.value.end) == (20, 50)
    reader.close()


def test_a_refusal_is_final(scripted: Scripted, open_one: OpenReader) -> None:
    broker = scripted(plain())
    broker.whims = [refusing(ErrorCode.TOPIC_AUTHORIZATION_FAILED)] * 3
    reader = open_one(broker.bootstrap, ReaderOptions())

    with pytest.raises(PipelineError, match=r"scripted/0: .*offset 0 failed: TOPIC_AUTHORIZATION_FAILED"):
        offsets_of(reader, OffsetRange(TOPIC, 0, 0, 50))


def test_a_broken_batch_is_named(scripted: Scripted) -> None:
    batches = plain()
    batches[3][-1] ^= 1
    reader = SocketReader(scripted(batches).bootstrap, ReaderOptions())

    with pytest.raises(PipelineError, match="scripted/0: broken records: the batch at offset 30: its CRC"):
        offsets_of(reader, OffsetRange(TOPIC, 0, 0, 50))
    reader.close()


def test_batches_out_of_order_are_refused(scripted: Scripted) -> None:
    broker = scripted([batch_at(0), batch_at(20), batch_at(10)])
    broker.high_watermark = 30
    reader = SocketReader(broker.bootstrap, ReaderOptions())

    with pytest.raises(PipelineError, match="the batch at offset 10 comes after 30"):
        offsets_of(reader, OffsetRange(TOPIC, 0, 0, 30))
    reader.close()


@pytest.mark.parametrize(
    "answer", [b"\x7f\xff\xff\xff", b"\x00\x00\x00\x02ok", b"\x00\x00\x00\x08\x00\x00\x00\x63aaaa"]
)
def test_a_broker_that_talks_nonsense_is_given_up(scripted: Scripted, answer: bytes) -> None:
    broker = scripted(plain())
    broker.whims = [lambda _: answer] * 100
    reader = SocketReader(broker.bootstrap, IMPATIENT)

    with pytest.raises(PipelineError, match=r"scripted/0: no progress at offset 0 for 2 s: 127\.0\.0\.1:"):
        offsets_of(reader, OffsetRange(TOPIC, 0, 0, 50))
    reader.close()


def test_nobody_at_home_is_one_error(open_one: OpenReader) -> None:
    reader = open_one("127.0.0.1:1", IMPATIENT)

    with pytest.raises(PipelineError, match="scripted/0: no progress at offset 0"):
        offsets_of(reader, OffsetRange(TOPIC, 0, 0, 50))


def test_a_broker_that_denies_an_offset_it_has_is_asked_again_for_a_while_only(scripted: Scripted) -> None:
    broker = scripted(plain())
    broker.whims = [refusing(ErrorCode.OFFSET_OUT_OF_RANGE)] * 1_000
    reader = SocketReader(broker.bootstrap, IMPATIENT)

    with pytest.raises(
        PipelineError, match=r"no progress at offset 0 .*out of range, though the log holds it"
    ):
        offsets_of(reader, OffsetRange(TOPIC, 0, 0, 50))
    reader.close()


def test_reading_goes_on_without_the_bootstrap_broker(scripted: Scripted) -> None:
    first, leader = scripted([]), scripted(plain())
    first.leader = leader
    leader.answer_batches_max = 1
    reader = SocketReader(first.bootstrap, replace(IMPATIENT, rows_max=10))

    read = reader.read(OffsetRange(TOPIC, 0, 0, 50))
    offsets = next(read).column("offset").to_pylist()
    first.close()
    leader.whims.append(lambda request: None)
    for batch in read:
        offsets += batch.column("offset").to_pylist()

    assert offsets == [*range(50)]
    assert not leader.whims
    reader.close()
