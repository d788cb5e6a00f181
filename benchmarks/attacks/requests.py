"""One valid request that is much work: of an API that takes a list, the longest list there may be."""

import struct

from benchmarks.attacks.attack import Attacker, AttackTable
from penstock.client.connection import BrokerConnection
from penstock.core.protocol import RequestHeader, api, request_frame
from penstock.core.protocol.messages.delete_records import (
    DeleteRecordsRequest,
    DeleteRecordsRequestPartition,
    DeleteRecordsRequestTopic,
)
from penstock.core.protocol.messages.describe_groups import DescribeGroupsRequest
from penstock.core.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersRequestTopicPartitions,
)
from penstock.core.protocol.messages.find_coordinator import FindCoordinatorRequest
from penstock.core.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.core.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestGroupTopic,
)

MEBIBYTE = 1 << 20
requests = AttackTable("requests")


@requests.attack("describe-groups")
def describe_groups(attacker: Attacker) -> None:
    """DescribeGroups of 1 MB of empty ids."""
    attacker.repeat_frame(lambda at: at.frame(DescribeGroupsRequest(groups=("",) * MEBIBYTE)))


@requests.attack("find-coordinator")
def find_coordinator(attacker: Attacker) -> None:
    """FindCoordinator of 1 MB of empty keys."""
    attacker.repeat_frame(lambda at: at.frame(FindCoordinatorRequest(coordinator_keys=("",) * MEBIBYTE)))


@requests.attack("elect-leaders")
def elect_leaders(attacker: Attacker) -> None:
    """ElectLeaders of 1 MB of partitions."""
    topic = ElectLeadersRequestTopicPartitions(topic="t", partitions=tuple(range(MEBIBYTE // 4)))
    attacker.repeat_frame(lambda at: at.frame(ElectLeadersRequest(topic_partitions=(topic,))))


@requests.attack("offset-fetch")
def offset_fetch(attacker: Attacker) -> None:
    """OffsetFetch of 1 MB of partitions."""
    topic = OffsetFetchRequestGroupTopic(name="t", partition_indexes=tuple(range(MEBIBYTE // 4)))
    group = OffsetFetchRequestGroup(group_id="g", topics=(topic,))

    def frame(_connection: BrokerConnection) -> bytearray:
        header = RequestHeader(9, 8, 1, "attacker")
        return request_frame(api(9), header, OffsetFetchRequest(groups=(group,)))

    attacker.repeat_frame(frame)


@requests.attack("metadata-100-mb")
def metadata_100_mb(attacker: Attacker) -> None:
    """Metadata of 100 MB of topics that do not exist."""

    def frame(_connection: BrokerConnection) -> bytes:
        name = b"\x00\x08no-topic"
        count = (100 * MEBIBYTE - 1024) // len(name)
        header = struct.pack(">hhih8s", 3, 4, 1, 8, b"attacker")
        body = struct.pack(">i", count) + name * count + b"\x00"
        return struct.pack(">i", len(header) + len(body)) + header + body

    attacker.repeat_frame(frame)


@requests.attack("metadata-auto-create")
def metadata_auto_create(attacker: Attacker) -> None:
    """Metadata that asks for 20,000 topics to be created."""
    topics = tuple(MetadataRequestTopic(name=f"made-{number}") for number in range(20_000))
    attacker.repeat_frame(lambda at: at.frame(MetadataRequest(topics=topics, allow_auto_topic_creation=True)))


def _one_topic(attacker: Attacker) -> None:
    attacker.create_topic("t", partitions=6)


@requests.attack("delete-records", prepare=_one_topic)
def delete_records(attacker: Attacker) -> None:
    """DeleteRecords of 5,000 rows."""
    rows = tuple(
        DeleteRecordsRequestPartition(partition_index=number % 6, offset=0) for number in range(5_000)
    )
    topic = DeleteRecordsRequestTopic(name="t", partitions=rows)
    attacker.repeat_frame(lambda at: at.frame(DeleteRecordsRequest(topics=(topic,), timeout_ms=1_000)))
