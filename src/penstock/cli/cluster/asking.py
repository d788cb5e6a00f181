"""Asking a cluster about itself, through whichever broker answers first."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from penstock.cli.cluster.overview import FENCED, RUNNING, Move, Partition, Registered
from penstock.cli.cluster.targets import Layout
from penstock.client import BrokerUnreachable, ClientError, Endpoint
from penstock.client.cluster import is_drained as is_drained_there
from penstock.client.connection import BrokerConnection, api_of
from penstock.client.errors import no_broker
from penstock.core.protocol import ErrorCode, Message
from penstock.core.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from penstock.core.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsRequestResource,
)
from penstock.core.protocol.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsRequestTopic,
)
from penstock.core.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartition,
    DescribeQuorumRequestTopic,
    DescribeQuorumResponsePartition,
)
from penstock.core.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestConfig,
    IncrementalAlterConfigsRequestResource,
)
from penstock.core.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from penstock.core.protocol.messages.metadata import MetadataRequest, MetadataResponse

METADATA_TOPIC = "__cluster_metadata"
TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4
ALL_BROKERS = ""
CONFIG_SET, CONFIG_DELETE = 0, 1
THROTTLE = "leader.replication.throttled.rate"
MINIMUM = "min.insync.replicas"
LIST_MOVES, DESCRIBE_QUORUM = 46, 55
M = TypeVar("M", bound=Message)
Place = tuple[str, int]


class ClusterDoor:
    """One connection to one broker, which answers for the whole cluster."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._connection, self.address = _any_connection(endpoint)

    def ask(self, request: Message) -> Any:
        """Send a request and answer what came back; ClientError if nothing did."""
        about = api_of(type(request))
        if about.key not in self._connection.versions:
            raise ClientError(f"the broker does not serve {about.name}")
        return self._connection.ask(request)

    def cluster(self) -> DescribeClusterResponse:
        """Its id, its controller, and every broker that is registered."""
        answer: DescribeClusterResponse = self.ask(
            DescribeClusterRequest(include_cluster_authorized_operations=False, include_fenced_brokers=True)
        )
        expect("the cluster", answer.error_code, answer.error_message)
        return answer

    def registered(self, answer: DescribeClusterResponse) -> dict[int, Registered]:
        """The brokers by number."""
        return {
            one.broker_id: Registered(
                _address(one.host, one.port), one.rack, FENCED if one.is_fenced else RUNNING
            )
            for one in answer.brokers
        }

    def throttle(self, bytes_per_second: int | None) -> None:
        """Limit what brokers send to replicas that catch up; None ends that."""
        config = IncrementalAlterConfigsRequestConfig(
            name=THROTTLE,
            config_operation=CONFIG_SET if bytes_per_second else CONFIG_DELETE,
            value=str(bytes_per_second) if bytes_per_second else None,
        )
        everywhere = IncrementalAlterConfigsRequestResource(
            resource_type=BROKER_RESOURCE, resource_name=ALL_BROKERS, configs=(config,)
        )
        answer = self.ask(IncrementalAlterConfigsRequest(resources=(everywhere,), validate_only=False))
        for row in answer.responses:
            expect(THROTTLE, row.error_code, row.error_message)

    def partitions(self) -> list[Partition]:
        """Every partition of every topic, internal ones too."""
        answer: MetadataResponse = self.ask(MetadataRequest(topics=None, allow_auto_topic_creation=False))
        names = [topic.name or "" for topic in answer.topics]
        minimums = self._minimums(names)
        return [
            Partition(
                name,
                one.partition_index,
                one.leader_id if one.leader_id >= 0 else None,
                tuple(one.replica_nodes),
                tuple(one.isr_nodes),
                minimums.get(name, 1),
            )
            for name, topic in sorted(zip(names, answer.topics, strict=True), key=lambda pair: pair[0])
            for one in sorted(topic.partitions, key=lambda partition: partition.partition_index)
        ]

    def _minimums(self, topics: Sequence[str]) -> dict[str, int]:
        resources = tuple(
            DescribeConfigsRequestResource(
                resource_type=TOPIC_RESOURCE, resource_name=topic, configuration_keys=(MINIMUM,)
            )
            for topic in topics
        )
        if not resources:
            return {}
        answer = self.ask(DescribeConfigsRequest(resources=resources))
        return {
            one.resource_name: int(config.value)
            for one in answer.results
            for config in one.configs
            if config.name == MINIMUM and config.value
        }

    def moves(self) -> list[Move]:
        """The reassignments under way, without how far they are; a broker that can move nothing has none."""
        if LIST_MOVES not in self._connection.versions:
            return []
        answer = self.ask(ListPartitionReassignmentsRequest(topics=None))
        expect("the reassignments", answer.error_code, answer.error_message)
        return [
            Move(
                topic.name,
                one.partition_index,
                tuple(one.replicas),
                tuple(one.adding_replicas),
                tuple(one.removing_replicas),
            )
            for topic in answer.topics
            for one in topic.partitions
        ]

    def says_it_is_drained(self, node_id: int) -> bool:
        return is_drained_there(self._connection, node_id)

    def quorum(self) -> DescribeQuorumResponsePartition:
        """Who votes on the metadata, and how far each has got."""
        partition = DescribeQuorumRequestPartition(partition_index=0)
        topic = DescribeQuorumRequestTopic(topic_name=METADATA_TOPIC, partitions=(partition,))
        answer = self.ask(DescribeQuorumRequest(topics=(topic,)))
        expect("the quorum", answer.error_code, answer.error_message)
        found: DescribeQuorumResponsePartition = answer.topics[0].partitions[0]
        expect("the quorum", found.error_code, found.error_message)
        return found

    def controller(self, answer: DescribeClusterResponse) -> int | None:
        """Who leads the quorum; None if nobody does, as far as this broker knows."""
        leader = answer.controller_id
        if DESCRIBE_QUORUM in self._connection.versions:
            try:
                leader = self.quorum().leader_id
            except ClientError:
                return None
        return leader if leader >= 0 else None

    def close(self) -> None:
        self._connection.close()


@contextmanager
def door_to(bootstrap: str) -> Iterator[ClusterDoor]:
    """A connection to the first of the addresses that answers, for as long as it is needed."""
    door = ClusterDoor(Endpoint(bootstrap))
    try:
        yield door
    finally:
        door.close()


def layout_of(partitions: Iterable[Partition]) -> Layout:
    """Which partitions each topic has, and on which nodes."""
    layout: dict[str, dict[int, tuple[int, ...]]] = {}
    for one in partitions:
        layout.setdefault(one.topic, {})[one.partition] = one.replicas
    return layout


def is_drained(address: str, node_id: int) -> bool:
    """Whether a broker is kept empty, which only it can say; one that does not answer is not known to be."""
    with suppress(ClientError), door_to(address) as door:
        return door.says_it_is_drained(node_id)
    return False


def sizes_on(address: str, places: Sequence[Place]) -> Mapping[Place, int]:
    """How many bytes one broker holds of these partitions; nothing if it does not answer."""
    topics: dict[str, list[int]] = {}
    for topic, partition in places:
        topics.setdefault(topic, []).append(partition)
    request = DescribeLogDirsRequest(
        topics=tuple(
            DescribeLogDirsRequestTopic(topic=topic, partitions=tuple(partitions))
            for topic, partitions in topics.items()
        )
    )
    with suppress(ClientError), door_to(address) as door:
        return {
            (topic.name, one.partition_index): one.partition_size
            for directory in door.ask(request).results
            for topic in directory.topics
            for one in topic.partitions
        }
    return {}


def expect(what: str, code: int, message: str | None) -> None:
    """Raise what an answer complains about."""
    if code != ErrorCode.NONE:
        raise ClientError(f"{what}: {complaint(code, message)}")


def complaint(code: int, message: str | None) -> str:
    try:
        name = ErrorCode(code).name.lower().replace("_", " ")
    except ValueError:
        name = f"error {code}"
    return message or name


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _any_connection(endpoint: Endpoint) -> tuple[BrokerConnection, str]:
    addresses = endpoint.addresses()
    failure: ClientError | None = None
    for address in addresses:
        try:
            return BrokerConnection(address), _address(*address)
        except BrokerUnreachable as error:
            failure = error
        except ClientError:
            failure = BrokerUnreachable(f"{_address(*address)} does not answer as a Kafka broker")
    if failure is not None and len(addresses) == 1:
        raise failure
    raise no_broker(endpoint.bootstrap, "none of them answers")
