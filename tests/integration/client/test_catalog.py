"""Partitions and offsets for somebody who plans reads, from a real broker."""

import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from penstock.client import (
    EARLIEST,
    LATEST,
    BrokerUnreachable,
    Endpoint,
    GroupAdmin,
    TopicAdmin,
    TopicCatalog,
)
from tests.support.nodes import NodeProcess


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    node = NodeProcess(tmp_path_factory.mktemp("catalogue") / "node").start()
    yield node
    node.stop()


@pytest.fixture(scope="module")
def topics(node: NodeProcess) -> TopicAdmin:
    topics = TopicAdmin(Endpoint(node.kafka))
    for name in ("metrics.in", "metrics.out", "other"):
        topics.create(name, 2, 1, {})
    producer = Producer({"bootstrap.servers": node.kafka})
    for moment_ms in (1_000, 2_000, 3_000):
        producer.produce("metrics.in", b"x", partition=0, timestamp=moment_ms)
    assert producer.flush(30) == 0
    # Committing makes the brokers' own topic, which no pattern may match.
    GroupAdmin(Endpoint(node.kafka)).reset("somebody", {("other", 0): 0})
    return topics


def test_topics_that_exist_are_described_and_asking_creates_none(
    node: NodeProcess, topics: TopicAdmin
) -> None:
    catalogue = TopicCatalog(Endpoint(node.kafka))

    found = catalogue.topics(["other", "missing"])

    assert [(one.topic, one.partitions) for one in found.values()] == [("other", (0, 1))]
    assert catalogue.topics(["missing"]) == {}


def test_a_pattern_matches_whole_names_and_never_the_brokers_own(
    node: NodeProcess, topics: TopicAdmin
) -> None:
    catalogue = TopicCatalog(Endpoint(node.kafka))

    assert sorted(catalogue.matching(re.compile(r"metrics\..*"))) == ["metrics.in", "metrics.out"]
    assert sorted(catalogue.matching(re.compile("metrics"))) == []
    assert not [name for name in catalogue.matching(re.compile(".*")) if name.startswith("__")]


def test_offsets_are_found_at_both_ends_and_at_a_time_and_not_in_partitions_that_are_not_there(
    node: NodeProcess, topics: TopicAdmin
) -> None:
    catalogue = TopicCatalog(Endpoint(node.kafka))
    one, empty, none = ("metrics.in", 0), ("metrics.in", 1), ("metrics.in", 7)

    assert catalogue.offsets({one: LATEST, empty: EARLIEST, none: LATEST}) == {one: 3, empty: 0}
    assert catalogue.offsets({one: 1_500, empty: 1_500}) == {one: 1, empty: -1}
    assert catalogue.earliest([one, ("missing", 0)]) == {one: 0}
    assert catalogue.latest([]) == {}


def test_a_topic_that_is_created_anew_has_another_id(node: NodeProcess, topics: TopicAdmin) -> None:
    catalogue = TopicCatalog(Endpoint(node.kafka))
    topics.create("again", 1, 1, {})
    before = catalogue.topics(["again"])["again"].topic_id

    topics.delete("again")
    topics.create("again", 1, 1, {})

    after = catalogue.topics(["again"])["again"].topic_id
    assert before
    assert after not in ("", before)


def test_a_broker_that_is_away_is_asked_again_until_it_is_back(tmp_path: Path) -> None:
    node = NodeProcess(tmp_path / "node").start()
    try:
        TopicAdmin(Endpoint(node.kafka)).create("here", 1, 1, {})
        catalogue = TopicCatalog(Endpoint(node.kafka))
        assert catalogue.latest([("here", 0)]) == {("here", 0): 0}
        node.kill()

        found = {}
        asking = threading.Thread(target=lambda: found.update(catalogue.latest([("here", 0)])))
        asking.start()
        node.start()
        asking.join(60)

        assert found == {("here", 0): 0}
    finally:
        node.stop()


def test_a_broker_that_never_was_there_is_given_up() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        endpoint = Endpoint(f"127.0.0.1:{unused.getsockname()[1]}")

        with pytest.raises(BrokerUnreachable, match="no broker at"):
            TopicCatalog(endpoint, patience_ms=300).topics(["a"])
