"""The query as a consumer group, on a real broker; no session is needed to see it."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer
from pyspark.sql.streaming.datasource import ReadAllAvailable

from penstock.client import Endpoint, GroupAdmin
from penstock.spark.errors import DataLost, SparkOptionError
from penstock.spark.source import TopicStreamReader, columns, stream_reader
from tests.spark.source.topics import delete_records, numbered, produce


@pytest.fixture
def group(topic: str) -> str:
    return f"group-{topic}"


@pytest.fixture
def member(servers: str, topic: str, group: str) -> Iterator[Consumer]:
    """Somebody else, who reads the topic as a member of the group."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group, "client.id": "somebody"})
    consumer.subscribe([topic])
    for _ in range(100):
        consumer.poll(0.1)
        if consumer.assignment():
            break
    assert consumer.assignment()
    yield consumer
    consumer.close()


def stream(servers: str, topic: str, group: str, **more: str) -> TopicStreamReader:
    options = {"kafka.bootstrap.servers": servers, "subscribe": topic, "group": group, **more}
    return stream_reader(options, columns(options))


def test_a_start_at_the_end_is_found_again_under_the_group(servers: str, topic: str, group: str) -> None:
    produce(servers, topic, numbered(0, 4))
    first = stream(servers, topic, group).initialOffset()
    produce(servers, topic, numbered(4, 9))

    again = stream(servers, topic, group).initialOffset()

    assert again == first
    assert again[topic] == {"0": 4, "1": 0}


def test_a_start_that_was_named_is_kept_whatever_the_group_has_read(
    servers: str, topic: str, group: str
) -> None:
    produce(servers, topic, numbered(0, 4))
    GroupAdmin(Endpoint(servers)).reset(group, {(topic, 0): 3})

    start = stream(servers, topic, group, startingOffsets="earliest").initialOffset()

    assert start[topic] == {"0": 0, "1": 0}
    assert GroupAdmin(Endpoint(servers)).committed(group) == {(topic, 0): 0, (topic, 1): 0}


def test_the_source_commits_what_spark_says_is_done(servers: str, topic: str, group: str) -> None:
    produce(servers, topic, numbered(0, 4))
    source = stream(servers, topic, group, startingOffsets="earliest")
    end = source.latestOffset(source.initialOffset(), ReadAllAvailable())

    source.commit(end)

    lags = GroupAdmin(Endpoint(servers)).describe(group).partitions
    assert [(one.committed, one.lag) for one in lags] == [(4, 0), (0, 0)]


def test_a_group_with_live_members_is_refused_at_the_start_and_after_a_restart(
    servers: str, topic: str, group: str, member: Consumer
) -> None:
    produce(servers, topic, numbered(0, 4))
    complaint = rf"option group: group {group} has live members \(somebody\)"

    with pytest.raises(SparkOptionError, match=complaint):
        stream(servers, topic, group).initialOffset()
    with pytest.raises(SparkOptionError, match=complaint):
        stream(servers, topic, group).latestOffset({topic: {"0": 1, "1": 0}}, ReadAllAvailable())


def test_members_that_come_later_do_not_end_the_query(
    servers: str, topic: str, group: str, member: Consumer, caplog: pytest.LogCaptureFixture
) -> None:
    stream(servers, topic, group).commit({topic: {"0": 1, "1": 0}})

    assert f"group {group}: offsets were not committed" in caplog.text


def test_records_that_the_group_has_not_read_and_that_are_gone_are_named(
    servers: str, topic: str, group: str
) -> None:
    produce(servers, topic, numbered(0, 9))
    GroupAdmin(Endpoint(servers)).reset(group, {(topic, 0): 2})
    delete_records(servers, topic, before=6)

    with pytest.raises(DataLost, match=f"{topic}/0: offsets 2 to 5 are gone"):
        stream(servers, topic, group).initialOffset()
    start = stream(servers, topic, group, failOnDataLoss="false").initialOffset()

    assert start[topic] == {"0": 6, "1": 0}
