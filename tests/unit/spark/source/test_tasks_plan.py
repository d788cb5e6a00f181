"""Spans between offsets, what is missing there, and tasks."""

import pytest

from penstock.spark.errors import DataLost, PartitionGone, TopicRecreated
from penstock.spark.reading import OffsetRange
from penstock.spark.source import SourceOffsets
from penstock.spark.source.tasks import between, divide

A0, A1 = ("a", 0), ("a", 1)


def test_what_lies_between_two_offsets_is_read_and_nothing_else() -> None:
    found = between(SourceOffsets({A0: 3, A1: 5}), SourceOffsets({A0: 9, A1: 5}), {A0: 0, A1: 0})

    assert found == ([OffsetRange("a", 0, 3, 9)], [])


def test_a_partition_that_is_new_is_read_from_its_beginning() -> None:
    found = between(SourceOffsets({A0: 9}), SourceOffsets({A0: 9, A1: 6}), {A0: 0, A1: 2})

    assert found == ([OffsetRange("a", 1, 2, 6)], [])


def test_records_that_retention_took_before_they_were_read_are_named_exactly() -> None:
    found = between(SourceOffsets({A0: 3}), SourceOffsets({A0: 9}), {A0: 7})

    assert found.spans == [OffsetRange("a", 0, 7, 9)]
    (loss,) = found.losses
    assert isinstance(loss, DataLost)
    assert (loss.topic, loss.partition, loss.start, loss.end) == ("a", 0, 3, 7)
    assert "offsets 3 to 6" in str(loss)


def test_a_log_that_begins_later_is_no_loss_if_everything_was_read() -> None:
    assert between(SourceOffsets({A0: 9}), SourceOffsets({A0: 9}), {A0: 9}) == ([], [])
    assert between(SourceOffsets({A0: 5}), SourceOffsets({A0: 5}), {A0: 9}) == ([], [])


@pytest.mark.parametrize("end", [4, 8, 12])
def test_a_topic_with_another_id_is_read_anew_however_long_it_is(end: int) -> None:
    found = between(SourceOffsets({A0: 8}, {"a": "old"}), SourceOffsets({A0: end}, {"a": "new"}), {A0: 0})

    assert found.spans == [OffsetRange("a", 0, 0, end)]
    assert [type(loss) for loss in found.losses] == [TopicRecreated]
    assert "read up to offset 8 of the old log" in str(found.losses[0])


def test_a_log_that_ends_before_the_checkpoint_was_created_anew() -> None:
    found = between(SourceOffsets({A0: 8}), SourceOffsets({A0: 5}), {A0: 0})

    assert found.spans == [OffsetRange("a", 0, 0, 5)]
    assert [type(loss) for loss in found.losses] == [TopicRecreated]


def test_a_partition_that_vanished_before_it_was_read_is_a_loss() -> None:
    found = between(SourceOffsets({A0: 3, A1: 2}), SourceOffsets({A0: 9, A1: 2}), {})

    assert found.spans == []
    assert [str(loss).split(":")[0] for loss in found.losses] == ["a/0"]
    assert [type(loss) for loss in found.losses] == [PartitionGone]


def test_without_wishes_a_partition_is_a_task() -> None:
    spans = [OffsetRange("a", 0, 0, 100), OffsetRange("a", 1, 0, 1)]

    assert divide(spans, None, None) == spans
    assert divide(spans, 2, None) == spans


def test_large_spans_are_cut_until_there_are_enough_tasks() -> None:
    tasks = divide([OffsetRange("a", 0, 0, 90), OffsetRange("a", 1, 10, 20)], 10, None)

    assert len(tasks) == 10
    assert [task for task in tasks if task.partition == 1] == [OffsetRange("a", 1, 10, 20)]
    assert [(task.start, task.end) for task in tasks[:9]] == [(n * 10, n * 10 + 10) for n in range(9)]


@pytest.mark.parametrize("sizes", [(1,), (2, 3), (100, 1, 1), (7, 7, 7)])
@pytest.mark.parametrize("wanted", [1, 2, 5, 8, 400])
def test_tasks_cover_every_offset_once(sizes: tuple[int, ...], wanted: int) -> None:
    spans = [OffsetRange("a", number, 5, 5 + size) for number, size in enumerate(sizes)]

    tasks = divide(spans, wanted, None)

    covered = [(task.partition, offset) for task in tasks for offset in range(task.start, task.end)]
    assert covered == [(span.partition, offset) for span in spans for offset in range(span.start, span.end)]
    assert all(task.start < task.end for task in tasks)


def test_tasks_are_cut_as_the_official_connector_cuts_them() -> None:
    spans = [OffsetRange("a", number, 0, size) for number, size in enumerate((10, 10, 2, 2))]

    tasks = divide(spans, 13, None)

    assert [task.end - task.start for task in tasks] == [1, 1, 2, 2, 2, 2] * 2 + [2, 2]


def test_no_task_is_larger_than_allowed() -> None:
    tasks = divide([OffsetRange("a", 0, 0, 10), OffsetRange("a", 1, 0, 3)], None, 4)

    assert [task.end - task.start for task in tasks] == [3, 3, 4, 3]
