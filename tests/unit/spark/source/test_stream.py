"""What Spark calls on a stream, and what it returns."""

from collections.abc import Mapping
from typing import Any, cast

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from penstock.client import TopicCatalog
from penstock.spark.errors import DataLost, PartitionGone, TopicRecreated
from penstock.spark.reading import OffsetRange
from penstock.spark.source import TopicStreamReader, source_options
from penstock.spark.source.broker_offsets import BrokerOffsets
from penstock.spark.source.tasks import TopicInputPartition, task_reading
from tests.unit.spark.source.catalogs import WrittenCatalogue

ALL = ReadAllAvailable()
SUBSCRIBED = {"subscribe": "a"}


def stream(
    catalogue: WrittenCatalogue, topics: Mapping[str, str] = SUBSCRIBED, **options: str
) -> TopicStreamReader:
    given = {"kafka.bootstrap.servers": "h:1", **topics, **options}
    parsed = source_options(given, streaming=True)
    return TopicStreamReader(
        parsed, task_reading(given), BrokerOffsets(parsed, cast(TopicCatalog, catalogue))
    )


def planned(source: TopicStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[OffsetRange]:
    return [task.span for task in source.partitions(start, end) if isinstance(task, TopicInputPartition)]


def test_a_stream_from_the_beginning_reads_everything_in_its_first_batch() -> None:
    source = stream(WrittenCatalogue({("a", 0): (2, 10)}), startingOffsets="earliest")

    start = source.initialOffset()
    end = source.latestOffset(start, ALL)

    assert (start, end) == ({"a": {"0": 2}, "a@one": {}}, {"a": {"0": 10}, "a@one": {}})
    assert planned(source, start, end) == [OffsetRange("a", 0, 2, 10)]
    assert source.reportLatestOffset() == {"a": {"0": 10}}


def test_with_nothing_new_the_answer_is_the_start_itself() -> None:
    source = stream(WrittenCatalogue({("a", 0): (0, 10), ("a", 1): (0, 0)}))
    start = {"a": {"0": 10}}

    assert source.latestOffset(start, ALL) is start


def test_the_first_offsets_are_the_same_however_often_they_are_asked_for() -> None:
    catalogue = WrittenCatalogue({("a", 0): (0, 10)})
    source = stream(catalogue)
    first = source.initialOffset()

    catalogue.logs["a", 0] = (0, 20)

    assert source.initialOffset() == first


def test_the_first_batch_of_a_stream_from_the_end_is_empty_and_the_second_has_everything_since() -> None:
    catalogue = WrittenCatalogue({("a", 0): (0, 10)})
    source = stream(catalogue)
    start = source.initialOffset()
    catalogue.logs["a", 0] = (0, 15)

    first_end = source.latestOffset(start, ALL)
    first = planned(source, start, first_end)
    second_end = source.latestOffset(first_end, ALL)

    assert (first_end, first) == (start, [])
    assert planned(source, first_end, second_end) == [OffsetRange("a", 0, 10, 15)]


def test_a_run_that_failed_in_its_first_batch_loses_nothing_though_the_end_has_moved() -> None:
    catalogue = WrittenCatalogue({("a", 0): (0, 10)})
    before = stream(catalogue)
    logged = before.latestOffset(before.initialOffset(), ALL)
    catalogue.logs["a", 0] = (0, 15)

    after = stream(catalogue)
    replayed = planned(after, after.initialOffset(), logged)
    end = after.latestOffset(logged, ALL)

    assert replayed == []
    assert planned(after, logged, end) == [OffsetRange("a", 0, 10, 15)]


def test_a_topic_created_anew_under_an_idle_stream_is_not_taken_for_a_replayed_first_batch() -> None:
    catalogue = WrittenCatalogue({("a", 0): (0, 10)})
    source = stream(catalogue, failOnDataLoss="false")
    start = source.initialOffset()
    source.partitions(start, source.latestOffset(start, ALL))
    catalogue.logs["a", 0], catalogue.ids = (0, 4), "two"

    end = source.latestOffset(start, ALL)

    assert planned(source, start, end) == [OffsetRange("a", 0, 0, 4)]


def test_new_partitions_and_topics_are_read_from_their_beginning() -> None:
    catalogue = WrittenCatalogue({("a", 0): (0, 10), ("a", 1): (3, 6), ("ab", 0): (0, 2), ("b", 0): (0, 9)})
    source = stream(catalogue, topics={"subscribePattern": "a.*"})
    start = {"a": {"0": 10}}

    end = source.latestOffset(start, ALL)

    assert planned(source, start, end) == [OffsetRange("a", 1, 3, 6), OffsetRange("ab", 0, 0, 2)]


def test_the_limit_of_the_options_is_handed_to_spark_and_kept_when_it_comes_back() -> None:
    catalogue = WrittenCatalogue({("a", 0): (0, 100), ("a", 1): (0, 300)})
    source = stream(catalogue, maxOffsetsPerTrigger="40")
    start = {"a": {"0": 0, "1": 0}}

    limit = source.getDefaultReadLimit()

    assert limit == ReadMaxRows(40)
    assert source.latestOffset(start, limit)["a"] == {"0": 10, "1": 30}
    assert source.latestOffset(start, ALL)["a"] == {"0": 100, "1": 300}


def test_a_stream_that_wants_many_records_waits_for_them_unless_it_reads_only_what_is_there() -> None:
    catalogue = WrittenCatalogue({("a", 0): (0, 100)})
    source = stream(catalogue, minOffsetsPerTrigger="101", maxTriggerDelay="1h")
    start = {"a": {"0": 0}}
    limit = source.getDefaultReadLimit()

    assert limit == ReadMinRows(101)
    assert source.latestOffset(start, limit) is start
    source.prepareForTriggerAvailableNow()
    assert source.latestOffset(start, limit)["a"] == {"0": 100}


def test_a_run_over_what_is_there_stops_at_what_was_there() -> None:
    catalogue = WrittenCatalogue({("a", 0): (0, 100)})
    source = stream(catalogue, maxOffsetsPerTrigger="70")
    source.prepareForTriggerAvailableNow()
    catalogue.logs = {("a", 0): (0, 500), ("a", 1): (0, 9)}

    first = source.latestOffset({"a": {"0": 0}}, ReadMaxRows(70))
    second = source.latestOffset(first, ReadMaxRows(70))

    assert [end["a"]["0"] for end in (first, second)] == [70, 100]
    assert source.latestOffset(second, ReadMaxRows(70)) is second


def test_lost_records_end_the_query_or_are_stepped_over() -> None:
    catalogue = WrittenCatalogue({("a", 0): (50, 100)})
    start = {"a": {"0": 20}}

    with pytest.raises(DataLost, match="a/0: offsets 20 to 49 are gone"):
        stream(catalogue).latestOffset(start, ALL)
    source = stream(catalogue, failOnDataLoss="false", maxOffsetsPerTrigger="10")
    end = source.latestOffset(start, ReadMaxRows(10))

    assert end["a"] == {"0": 60}
    assert planned(source, start, end) == [OffsetRange("a", 0, 50, 60)]


@pytest.mark.parametrize("end", [5, 20, 100])
def test_a_topic_created_anew_ends_the_query_or_is_read_from_its_beginning(end: int) -> None:
    catalogue = WrittenCatalogue({("a", 0): (0, end)}, ids="two")
    start = {"a": {"0": 20}, "a@one": {}}

    with pytest.raises(TopicRecreated, match="a/0: the topic was created anew"):
        stream(catalogue).latestOffset(start, ALL)
    source = stream(catalogue, failOnDataLoss="false")
    found = source.latestOffset(start, ALL)

    assert found == {"a": {"0": end}, "a@two": {}}
    assert planned(source, start, found) == [OffsetRange("a", 0, 0, end)]
    assert source.latestOffset(found, ALL) is found


def test_a_batch_that_was_planned_before_its_topic_was_created_anew_is_not_read_from_the_new_one() -> None:
    catalogue = WrittenCatalogue({("a", 0): (0, 100)}, ids="two")
    start, end = {"a": {"0": 20}, "a@one": {}}, {"a": {"0": 50}, "a@one": {}}

    with pytest.raises(TopicRecreated, match="a/0: the topic was created anew"):
        stream(catalogue).partitions(start, end)
    source = stream(catalogue, failOnDataLoss="false")

    assert planned(source, start, end) == []
    assert planned(source, end, source.latestOffset(end, ALL)) == [OffsetRange("a", 0, 0, 100)]
    assert planned(stream(catalogue, topicIds="false"), start, end) == [OffsetRange("a", 0, 20, 50)]


def test_a_checkpoint_with_partitions_that_are_not_read_ends_the_query_or_forgets_them() -> None:
    catalogue = WrittenCatalogue({("a", 0): (0, 10)})
    start = {"a": {"0": 3}, "z": {"4": 7}}

    with pytest.raises(PartitionGone, match="z/4: the checkpoint holds offset 7"):
        stream(catalogue).latestOffset(start, ALL)
    found = stream(catalogue, failOnDataLoss="false").latestOffset(start, ALL)

    assert found == {"a": {"0": 10}, "a@one": {}}


def test_ids_of_topics_can_be_left_out_of_the_offsets() -> None:
    source = stream(WrittenCatalogue({("a", 0): (0, 10)}), topicIds="false", startingOffsets="earliest")

    assert source.initialOffset() == {"a": {"0": 0}}
    assert source.latestOffset({"a": {"0": 0}}, ALL) == {"a": {"0": 10}}
