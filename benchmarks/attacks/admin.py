"""Administration without end: topics that come and go, partitions, lists of everything."""

import contextlib
import itertools
import socket

from benchmarks.attacks.attack import Attacker, AttackTable
from penstock.client.connection import BrokerConnection
from penstock.core.protocol import ZERO_UUID, ErrorCode
from penstock.core.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsRequestTopic,
)
from penstock.core.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsRequestTopic
from penstock.core.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsRequestTopic
from penstock.core.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsRequestResource,
)
from penstock.core.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from penstock.core.protocol.messages.metadata import MetadataRequest

admin = AttackTable("admin")
# The default of `create.partitions.max`.
PARTITIONS_AT_ONCE = 2_000


def _create(attacker: Attacker, connection: BrokerConnection, topics: dict[str, int]) -> int:
    """Create topics with so many partitions each; returns how many there are now."""
    wanted = tuple(
        CreateTopicsRequestTopic(
            name=name, num_partitions=partitions, replication_factor=-1, assignments=(), configs=()
        )
        for name, partitions in topics.items()
    )
    answer = attacker.ask(connection, CreateTopicsRequest(topics=wanted, timeout_ms=30_000))
    for one in answer.topics:
        attacker.counts[f"create: {ErrorCode(one.error_code).name}"] += 1
    return sum(one.error_code == ErrorCode.NONE for one in answer.topics)


def _delete(attacker: Attacker, connection: BrokerConnection, names: list[str]) -> None:
    wanted = tuple(DeleteTopicsRequestTopic(name=name, topic_id=ZERO_UUID) for name in names)
    answer = attacker.ask(connection, DeleteTopicsRequest(topics=wanted, timeout_ms=30_000))
    for one in answer.responses:
        attacker.counts[f"delete: {ErrorCode(one.error_code).name}"] += 1


@admin.attack("topic-churn")
def topic_churn(attacker: Attacker) -> None:
    """Ten topics of ten partitions are created and deleted, over and over."""
    numbers = itertools.count()

    def step(connection: BrokerConnection) -> None:
        names = [f"churn-{next(numbers)}" for _ in range(10)]
        _create(attacker, connection, dict.fromkeys(names, 10))
        _delete(attacker, connection, names)

    attacker.insist(step)


@admin.attack("many-partitions")
def many_partitions(attacker: Attacker) -> None:
    """CreateTopics and CreatePartitions with more partitions than are taken, and with as many as are."""
    numbers = itertools.count()

    def step(connection: BrokerConnection) -> None:
        number = next(numbers)
        _create(attacker, connection, {f"too-wide-{number}": 10_000})
        _create(attacker, connection, {f"wide-{number}": PARTITIONS_AT_ONCE})
        one = CreatePartitionsRequestTopic(name="well-behaved", count=1_000_000_000, assignments=None)
        answer = attacker.ask(
            connection, CreatePartitionsRequest(topics=(one,), timeout_ms=10_000, validate_only=False)
        )
        attacker.counts[f"grow: {ErrorCode(answer.results[0].error_code).name}"] += 1

    attacker.insist(step)


def _ten_thousand_partitions(attacker: Attacker) -> None:
    connection = attacker.connect()
    try:
        for start in range(0, 100, 10):
            _create(attacker, connection, {f"doomed-{number}": 100 for number in range(start, start + 10)})
    finally:
        connection.close()


@admin.attack("delete-10000-partitions", prepare=_ten_thousand_partitions, is_alone=True)
def delete_partitions(attacker: Attacker) -> None:
    """100 topics of 100 partitions are deleted with one request."""
    names = [f"doomed-{number}" for number in range(100)]
    attacker.insist(lambda connection: _delete(attacker, connection, names))


@admin.attack("lists-of-everything", prepare=_ten_thousand_partitions, is_alone=True)
def lists(attacker: Attacker) -> None:
    """Metadata, DescribeConfigs and DescribeLogDirs of a node with 10,000 partitions."""
    resources = tuple(
        DescribeConfigsRequestResource(
            resource_type=2, resource_name=f"doomed-{number}", configuration_keys=None
        )
        for number in range(100)
    )
    asked = itertools.cycle(
        (
            MetadataRequest(topics=None),
            DescribeConfigsRequest(resources=resources, include_synonyms=True, include_documentation=True),
            DescribeLogDirsRequest(topics=None),
        )
    )
    attacker.insist(lambda connection: attacker.ask(connection, next(asked)))


@admin.attack("metrics-scrapes", prepare=_ten_thousand_partitions, processes=2, is_alone=True)
def metrics_scrapes(attacker: Attacker) -> None:
    """Ten connections ask for the metrics of a node with 10,000 partitions, all the time."""
    request = b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n"
    address = attacker.target.http[attacker.number % len(attacker.target.http)]
    while not attacker.is_over:
        asked = attacker.sockets(10, lambda _: address)
        for one in asked:
            with contextlib.suppress(OSError):
                one.sendall(request)
        for one in asked:
            attacker.counts["bytes"] += _received(one)
            attacker.counts["requests"] += 1
            one.close()


def _received(connection: socket.socket) -> int:
    """How many bytes come until the end."""
    count = 0
    with contextlib.suppress(OSError):
        while piece := connection.recv(1 << 20):
            count += len(piece)
    return count
