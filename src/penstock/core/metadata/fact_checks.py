"""What a fact of another node must hold before it is stored: numbers that fit, names that can be names.

Our own facts are decided and need no check. A log that comes over the network may be made up: applied facts
name directories, and their numbers end up in files and in answers to clients.
"""

import base64
import binascii
from collections.abc import Iterator
from typing import Any

import msgspec

from penstock.core.metadata import records
from penstock.core.metadata.image import NO_LEADER, Broker, Partition
from penstock.core.metadata.topic_names import problem_with_name

INT32_MAX = 2**31 - 1
NUMBER_MAX = 2**62
REPLICAS_MAX = 1_000
TEXT_CHARS_MAX = 1 << 20
PORT_MAX = 65_535
CLUSTER_ID_BYTES = 16


def problem_with_fact(fact: records.Fact) -> str | None:  # noqa: C901 - one case per kind
    """What is impossible about a fact; None if nothing is."""
    for value in _values(fact):
        if isinstance(value, int) and not -NUMBER_MAX <= value <= NUMBER_MAX:
            return f"{value} is out of range"
        if isinstance(value, str) and len(value) > TEXT_CHARS_MAX:
            return "a text is too long"
    match fact:
        case records.ClusterIdSet():
            return None if _is_cluster_id(fact.cluster_id) else f"{fact.cluster_id!r} is no cluster id"
        case records.TopicCreated():
            return problem_with_name(fact.name)
        case records.PartitionCreated() | records.PartitionChanged():
            return _problem_with_partition(fact.partition)
        case records.BrokerRegistered():
            return _problem_with_broker(fact.broker)
        case records.FeatureLevelSet():
            return None if 0 <= fact.level <= INT32_MAX else f"level {fact.level}"
        case records.ProducerIdsAllocated():
            return None if min(fact.start, fact.count) >= 0 else "producer ids are negative"
        case _:
            return None


def _problem_with_partition(partition: Partition) -> str | None:
    replicas = partition.replicas
    if not 0 <= partition.index <= INT32_MAX or not 0 < len(replicas) <= REPLICAS_MAX:
        return f"partition {partition.index} with {len(replicas)} replicas"
    others = (
        *partition.isr,
        *partition.elr,
        *partition.last_known_elr,
        *partition.adding,
        *partition.removing,
    )
    if not all(0 <= node <= INT32_MAX for node in (*replicas, *others)):
        return "a replica has an impossible node id"
    if partition.leader != NO_LEADER and partition.leader not in replicas:
        return f"node {partition.leader} leads, and keeps no replica"
    epochs = (partition.leader_epoch, partition.partition_epoch, partition.unclean_epoch)
    if not all(-1 <= epoch <= INT32_MAX for epoch in epochs):
        return "an epoch is out of range"
    return None


def _problem_with_broker(broker: Broker) -> str | None:
    if not 0 <= broker.node_id <= INT32_MAX or not 0 <= broker.session_ms <= INT32_MAX:
        return f"node id {broker.node_id}, session {broker.session_ms} ms"
    if not all(0 <= listener.port <= PORT_MAX for listener in broker.listeners):
        return "a listener has an impossible port"
    return None


def _is_cluster_id(text: str) -> bool:
    try:
        return len(base64.urlsafe_b64decode(text + "==")) == CLUSTER_ID_BYTES
    except (binascii.Error, ValueError):
        return False


def _values(value: Any) -> Iterator[Any]:
    """The values in a fact, whatever it is made of."""
    if isinstance(value, msgspec.Struct):
        for field in value.__struct_fields__:
            yield from _values(getattr(value, field))
    elif isinstance(value, tuple):
        for item in value:
            yield from _values(item)
    else:
        yield value
