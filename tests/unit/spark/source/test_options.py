"""Options: what is read, what is rejected, and how the error names it."""

import pytest

from penstock.spark.errors import SparkOptionError
from penstock.spark.source import source_options

GIVEN = {"kafka.bootstrap.servers": "h:1", "subscribe": "a"}


def test_what_nobody_says_is_as_in_the_official_connector_but_for_committed_records() -> None:
    options = source_options(GIVEN, streaming=True)

    assert options.fail_on_data_loss
    assert not options.include_headers
    assert options.settings["isolation.level"] == "read_committed"
    assert options.max_trigger_delay_ms == 15 * 60_000
    assert (options.max_offsets, options.min_partitions, options.group) == (None, None, None)


def test_names_are_found_whatever_their_case() -> None:
    options = source_options(
        {"KAFKA.Bootstrap.Servers": "h:1", "subscribe": "a", "maxoffsetspertrigger": "5", "GROUP": "g"},
        streaming=True,
    )

    assert (options.max_offsets, options.group) == (5, "g")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("startingOffset", "startingOffsets"),
        ("maxOffsetPerTrigger", "maxOffsetsPerTrigger"),
        ("subscribed", "subscribe"),
        ("headers", "includeHeaders"),
    ],
)
def test_a_misspelled_option_is_refused_with_the_one_that_was_meant(name: str, meant: str) -> None:
    given = GIVEN | {name: "true"}

    with pytest.raises(SparkOptionError, match=f"option {name}: is not known; did you mean {meant}"):
        source_options(given, streaming=True)


@pytest.mark.parametrize(
    "name", ["path", "checkpointLocation", "fetchOffset.numRetries", "kafka.fetch.min.bytes"]
)
def test_options_of_spark_and_of_the_java_consumer_are_let_by(name: str) -> None:
    source_options(GIVEN | {name: "3"}, streaming=True)


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        (
            {"subscribePattern": "x"},
            "option subscribe: only one of subscribe and subscribePattern can be given",
        ),
        ({"endingOffsets": "latest"}, "option endingOffsets: a streaming query has no end"),
        ({"group": " "}, "option group: is empty"),
        ({"maxTriggerDelay": "soon"}, "option maxTriggerDelay: 'soon' is no duration"),
        ({"minPartitions": "0"}, "option minPartitions: 0 is less than 1"),
        ({"failOnDataLoss": "perhaps"}, "option failOnDataLoss: 'perhaps' is neither"),
        ({"kafka.isolation.level": "some"}, "option kafka.isolation.level: 'some' is none of"),
    ],
)
def test_a_value_that_cannot_be_is_refused_by_name(more: dict[str, str], complaint: str) -> None:
    with pytest.raises(SparkOptionError) as refusal:
        source_options(GIVEN | more, streaming=True)

    assert complaint in str(refusal.value)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({}, "option subscribe: is required: one of subscribe, subscribePattern, assign"),
        ({"subscribe": " , "}, "option subscribe: names no topic"),
        ({"subscribePattern": "a["}, "option subscribePattern: 'a[' is no regular expression"),
        ({"assign": "a"}, "option assign: 'a' is no JSON"),
        ({"assign": '{"a": 1}'}, "option assign: topic a: 1 is no list of partitions"),
        ({"assign": '{"a": [-1]}'}, "option assign: topic a: [-1] is no list of partitions"),
    ],
)
def test_one_of_three_ways_names_the_topics(given: dict[str, str], complaint: str) -> None:
    with pytest.raises(SparkOptionError) as refusal:
        source_options({"kafka.bootstrap.servers": "h:1"} | given, streaming=False)

    assert complaint in str(refusal.value)
