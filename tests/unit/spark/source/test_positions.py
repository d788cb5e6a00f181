"""Where reading starts and ends."""

from typing import cast

import pytest

from penstock.client import TopicCatalog
from penstock.spark.errors import SparkOptionError
from penstock.spark.source.options import ending_position, resolve, starting_position
from tests.unit.spark.source.catalogs import WrittenCatalogue

LOGS = {("a", 0): (3, 20), ("a", 1): (0, 5)}


def catalogue() -> TopicCatalog:
    return cast(TopicCatalog, WrittenCatalogue(LOGS))


def start(streaming: bool = True, **options: str) -> dict[tuple[str, int], int]:
    return resolve(starting_position(options, streaming=streaming), LOGS, catalogue()).positions


def test_a_stream_starts_at_the_end_and_a_batch_at_the_beginning() -> None:
    assert start() == {("a", 0): 20, ("a", 1): 5}
    assert start(streaming=False) == {("a", 0): 3, ("a", 1): 0}


def test_offsets_are_taken_partition_by_partition_with_words_for_both_ends() -> None:
    given = '{"a": {"0": 7, "1": -2}, "a@someid": {}}'

    assert start(startingOffsets=given) == {("a", 0): 7, ("a", 1): 0}
    assert start(startingOffsets='{"a": {"0": -1, "1": 5}}') == {("a", 0): 20, ("a", 1): 5}


def test_only_the_end_of_the_log_is_a_place_that_moves() -> None:
    given = starting_position({"startingOffsets": '{"a": {"0": -1, "1": -2}}'}, streaming=True)

    assert resolve(given, LOGS, catalogue()).momentary == {("a", 0)}


def test_a_timestamp_for_all_comes_before_timestamps_for_each_and_those_before_offsets() -> None:
    for_each = '{"a": {"0": 12, "1": 1}}'

    assert start(startingOffsetsByTimestamp=for_each, startingOffsets="earliest") == {
        ("a", 0): 12,
        ("a", 1): 1,
    }
    assert start(startingTimestamp="4", startingOffsetsByTimestamp=for_each) == {("a", 0): 4, ("a", 1): 4}


def test_a_start_after_the_last_record_is_an_error_unless_the_end_is_meant() -> None:
    with pytest.raises(SparkOptionError, match=r"startingTimestamp: a/1 has no record at or after 9"):
        start(startingTimestamp="9")

    found = start(startingTimestamp="9", startingOffsetsByTimestampStrategy="latest")
    assert found == {("a", 0): 9, ("a", 1): 5}


def test_an_end_after_the_last_record_is_the_end() -> None:
    position = ending_position({"endingTimestamp": "9"})

    assert resolve(position, LOGS, catalogue()).positions == {("a", 0): 9, ("a", 1): 5}


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ("erliest", "'erliest' is no JSON; expected earliest, latest or JSON such as"),
        ("[1]", "names no topics"),
        ('{"a": 3}', "topic a: 3 names no partitions"),
        ('{"a": {"x": 3}}', "topic a: 'x' is no partition"),
        ('{"a": {"0": "3"}}', "a/0: '3' is no offset"),
        ('{"a": {"0": -3}}', "a/0: -3 is no offset"),
        ('{"a": {"0": 1.5}}', "a/0: 1.5 is no offset"),
        ('{"a": {"0": 7}}', "a/1 is missing; name every partition"),
        ('{"a": {"0": 7, "1": 0, "2": 0}, "b": {"0": 1}}', "a/2, b/0 is not read by this query"),
        ('{"a": {"0": 2, "1": 0}}', "a/0: offset 2 is not in the log, which has 3 to 20"),
        ('{"a": {"0": 21, "1": 0}}', "a/0: offset 21 is not in the log, which has 3 to 20"),
    ],
)
def test_wrong_offsets_are_refused_with_the_key_that_is_wrong(given: str, complaint: str) -> None:
    with pytest.raises(SparkOptionError) as refusal:
        start(startingOffsets=given)

    assert str(refusal.value).startswith("option startingOffsets: ")
    assert complaint in str(refusal.value)


def test_a_batch_neither_starts_at_the_end_nor_ends_at_the_beginning() -> None:
    for given in ("latest", '{"a": {"0": -1, "1": 0}}'):
        with pytest.raises(SparkOptionError, match="startingOffsets: latest makes no sense in a batch query"):
            starting_position({"startingOffsets": given}, streaming=False)
    with pytest.raises(SparkOptionError, match="endingOffsets: earliest makes no sense in a batch query"):
        ending_position({"endingOffsets": "earliest"})


def test_offsets_that_the_log_does_not_hold_are_the_nearest_where_data_may_be_lost() -> None:
    found = start(startingOffsets='{"a": {"0": 1, "1": 9}}', failOnDataLoss="false")
    position = ending_position({"endingOffsets": '{"a": {"0": 25, "1": 4}}', "failOnDataLoss": "false"})

    assert found == {("a", 0): 3, ("a", 1): 5}
    assert resolve(position, LOGS, catalogue()).positions == {("a", 0): 20, ("a", 1): 4}
