from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from penstock.client import SingleRecord
from penstock.spark.errors import PipelineError
from penstock.spark.sink import BatchId, DeliveryReceipt, TaskId, TopicWriter

TASK = TaskId("q", 3, 7)


@dataclass
class Shelf:
    """A delivery that keeps what it is given."""

    sent: list[tuple[Any, ...]] = field(default_factory=list)
    task: TaskId | None = None

    def open(self, task: TaskId) -> "Shelf":
        self.task = task
        return self

    def send(
        self,
        topic: str,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None = None,
        partition: int = -1,
    ) -> None:
        self.sent.append((topic, partition, list(values), keys))

    def send_each(self, topic: str, records: Iterable[SingleRecord]) -> None:
        self.sent.append((topic, list(records)))

    def finish(self) -> DeliveryReceipt:
        return DeliveryReceipt(TASK, len(self.sent))

    def discard(self) -> None:
        self.sent.clear()

    def commit(self, receipts: Sequence[DeliveryReceipt], batch: BatchId) -> None: ...

    def abort(self, receipts: Sequence[DeliveryReceipt], batch: BatchId) -> None: ...


def sent_by(fixed: str | None, /, **columns: Any) -> list[tuple[Any, ...]]:
    shelf = Shelf()
    TopicWriter(shelf, fixed, TASK).write_batch(pa.RecordBatch.from_pydict(columns))
    return shelf.sent


def test_a_frame_with_one_topic_goes_as_whole_columns() -> None:
    sent = sent_by("t", key=["a", None, ""], value=[b"1", None, b""])

    assert sent == [("t", -1, [b"1", None, b""], [b"a", None, b""])]


def test_text_is_sent_as_utf_8() -> None:
    assert sent_by("t", value=["grün"]) == [("t", -1, ["grün".encode()], None)]


def test_rows_go_to_the_topics_and_partitions_that_they_name_in_their_order() -> None:
    sent = sent_by(
        None,
        value=[b"0", b"1", b"2", b"3"],
        topic=["a", "b", "a", "a"],
        partition=pa.array([0, None, 1, 0], pa.int32()),
    )

    assert sent == [
        ("a", 0, [b"0", b"3"], None),
        ("b", -1, [b"1"], None),
        ("a", 1, [b"2"], None),
    ]


def test_headers_and_times_go_with_their_record() -> None:
    headers = pa.array(
        [[{"key": "h", "value": b"1"}, {"key": "h", "value": None}], None],
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    )
    times = pa.array([datetime(2026, 1, 1, 0, 0, 0, 1_999, UTC), None], pa.timestamp("us", "UTC"))

    sent = sent_by("t", value=[b"a", b"b"], headers=headers, timestamp=times)

    first, second = sent[0][1]
    assert first == SingleRecord(b"a", None, -1, 1_767_225_600_001, [("h", b"1"), ("h", None)])
    assert second == SingleRecord(b"b", None, -1, 0, None)


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        (
            {"value": [b"x"], "topic": pa.array([None], pa.string())},
            "a row has no topic: set the option topic",
        ),
        (
            {"value": [b"x"], "topic": ["t"], "partition": pa.array([-2], pa.int32())},
            "t: a row has partition -2",
        ),
        (
            {
                "value": [b"x"],
                "topic": ["t"],
                "headers": pa.array(
                    [[{"key": None, "value": b""}]],
                    pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
                ),
            },
            "a header without a key",
        ),
    ],
)
def test_a_row_that_cannot_be_sent_is_named(columns: dict[str, Any], complaint: str) -> None:
    with pytest.raises(PipelineError, match=complaint):
        sent_by(None, **columns)


def test_the_task_that_writes_is_known_to_the_delivery() -> None:
    shelf = Shelf()

    receipt = TopicWriter(shelf, "t", TASK).finish()

    assert shelf.task == receipt.task == TASK
