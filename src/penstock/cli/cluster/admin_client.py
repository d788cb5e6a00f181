"""The cluster as an operator sees it, asked of the first broker that responds.

`AdminClient` sends Kafka's administration requests; the values here are what they return
(`ClusterOverview`, partitions, reassignments) and what is typed (targets, plans, rates).
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from penstock.cli.broker_options import endpoint
from penstock.client import BrokerUnreachable, ClientError, Endpoint
from penstock.client.admin import is_drained as is_drained_there
from penstock.client.connection import BrokerConnection, api_of, security_of
from penstock.client.connection_security import LoginFailed
from penstock.client.endpoint import no_broker
from penstock.core.model import PenstockError
from penstock.core.protocol import ErrorCode, Message
from penstock.core.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from penstock.core.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsRequestResource,
)
from penstock.core.protocol.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsRequestTopic,
    DescribeLogDirsResponseDirectory,
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

RUNNING, FENCED, DRAINED, UNKNOWN = "running", "fenced", "drained", "unknown"
MOVE_COLUMNS = ("partition", "replicas", "adding", "removing", "done")
PLAN_BYTES_MAX = 64 << 20
UNITS = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30}
# (topic, partition) -> the nodes that shall hold it, the preferred leader first.
Plan = dict[tuple[str, int], tuple[int, ...]]
# Topic -> its partitions, each with the nodes that hold it.
Layout = Mapping[str, Mapping[int, tuple[int, ...]]]
METADATA_TOPIC = "__cluster_metadata"
TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4
ALL_BROKERS = ""
CONFIG_SET, CONFIG_DELETE = 0, 1
THROTTLE = "leader.replication.throttled.rate"
MINIMUM = "min.insync.replicas"
LIST_MOVES, DESCRIBE_QUORUM = 46, 55
M = TypeVar("M", bound=Message)
Place = tuple[str, int]


@dataclass(frozen=True, slots=True)
class BrokerOverview:
    """A broker; `unknown` is one that holds replicas and is not registered."""

    node_id: int
    address: str | None
    rack: str | None
    state: str
    leads: int
    replicas: int


@dataclass(frozen=True, slots=True)
class PartitionOverview:
    """A partition, and how many replicas its topic wants in sync before it takes writes."""

    topic: str
    partition: int
    leader: int | None
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    minimum: int = 1

    @property
    def name(self) -> str:
        return f"{self.topic}:{self.partition}"

    @property
    def is_offline(self) -> bool:
        return self.leader is None

    @property
    def is_under_replicated(self) -> bool:
        return len(self.in_sync) < len(self.replicas)

    @property
    def is_under_minimum(self) -> bool:
        return len(self.in_sync) < self.minimum


@dataclass(frozen=True, slots=True)
class Reassignment:
    """A reassignment under way. Bytes are those that the new replicas have, and shall have."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]
    bytes_done: int = 0
    bytes_all: int = 0

    @property
    def name(self) -> str:
        return f"{self.topic}:{self.partition}"

    @property
    def percent(self) -> int:
        """How far the new replicas have got; the last step is for the controller, so never 100."""
        if not self.adding:
            return 99
        return min(99, 100 * self.bytes_done // self.bytes_all) if self.bytes_all else 0


@dataclass(frozen=True, slots=True)
class ClusterOverview:
    """Everything that `cluster status` shows."""

    cluster_id: str
    controller: int | None
    brokers: tuple[BrokerOverview, ...]
    partitions: int
    offline: tuple[PartitionOverview, ...]
    under_replicated: tuple[PartitionOverview, ...]
    under_minimum: tuple[PartitionOverview, ...]
    moves: tuple[Reassignment, ...]


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """A broker as it is registered."""

    address: str
    rack: str | None
    state: str


def survey(
    cluster: tuple[str, int | None],
    registered: Mapping[int, BrokerInfo],
    partitions: Sequence[PartitionOverview],
    moves: Sequence[Reassignment],
) -> ClusterOverview:
    """Put together what was asked for bit by bit; `cluster` is its id and its controller."""
    cluster_id, controller = cluster
    return ClusterOverview(
        cluster_id,
        controller,
        tuple(_brokers(registered, partitions)),
        len(partitions),
        tuple(one for one in partitions if one.is_offline),
        tuple(one for one in partitions if one.is_under_replicated),
        tuple(one for one in partitions if one.is_under_minimum),
        tuple(moves),
    )


def _brokers(
    registered: Mapping[int, BrokerInfo], partitions: Sequence[PartitionOverview]
) -> list[BrokerOverview]:
    leads: dict[int, int] = {}
    holds: dict[int, int] = {}
    for one in partitions:
        if one.leader is not None:
            leads[one.leader] = leads.get(one.leader, 0) + 1
        for node_id in one.replicas:
            holds[node_id] = holds.get(node_id, 0) + 1
    return [
        BrokerOverview(
            node_id,
            known.address if (known := registered.get(node_id)) else None,
            known.rack if known else None,
            known.state if known else UNKNOWN,
            leads.get(node_id, 0),
            holds.get(node_id, 0),
        )
        for node_id in sorted({*registered, *holds})
    ]


def reassignments_of(
    admin: "AdminClient", registered: dict[int, BrokerInfo], partitions: Sequence[PartitionOverview]
) -> list[Reassignment]:
    """What moves, and how far it is: each broker concerned is asked what it holds."""
    moves = admin.moves()
    leaders = {(one.topic, one.partition): one.leader for one in partitions}
    concerned: dict[int, list[tuple[str, int]]] = {}
    for move in moves:
        place = move.topic, move.partition
        for node_id in {*move.adding, leaders.get(place)}:
            if node_id in registered:
                concerned.setdefault(node_id, []).append(place)
    sizes = {node_id: sizes_on(registered[node_id].address, places) for node_id, places in concerned.items()}

    def held(node_id: int | None, place: tuple[str, int]) -> int:
        return 0 if node_id is None else sizes.get(node_id, {}).get(place, 0)

    def measured(move: Reassignment) -> Reassignment:
        place = move.topic, move.partition
        whole = held(leaders.get(place), place)
        done = sum(min(whole, held(node_id, place)) for node_id in move.adding)
        return replace(move, bytes_done=done, bytes_all=whole * len(move.adding))

    return [measured(move) for move in moves]


def reassignment_row(one: Reassignment) -> tuple[object, ...]:
    return one.name, ids(one.replicas), ids(one.adding), ids(one.removing), f"{one.percent}%"


def ids(nodes: Sequence[int]) -> str:
    return ",".join(map(str, nodes)) or "-"


class InvalidTarget(PenstockError):
    """Something to act on that is not there, or is not written as it must be."""


def chosen(texts: Sequence[str], layout: Layout) -> list[tuple[str, int]]:
    """The partitions that `TOPIC` and `TOPIC:PARTITION` stand for."""
    found: dict[tuple[str, int], None] = {}
    for text in texts:
        found |= dict.fromkeys(_partitions(text, layout))
    return list(found)


def _partitions(text: str, layout: Layout) -> list[tuple[str, int]]:
    if text in layout:
        return [(text, partition) for partition in sorted(layout[text])]
    # A topic's name has no colon.
    topic, colon, number = text.rpartition(":")
    if not colon:
        raise InvalidTarget(f"there is no topic {text}")
    if topic not in layout:
        raise InvalidTarget(f"there is no topic {topic}")
    if not (number.isascii() and number.isdigit()) or int(number) not in layout[topic]:
        raise InvalidTarget(f"topic {topic} has no partition {number or '(empty)'}")
    return [(topic, int(number))]


def nodes(flag: str, text: str) -> tuple[int, ...]:
    """Read `1,2,3`."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise InvalidTarget(f"{flag} {text}: expected node ids, as in {flag} 1,2,3")
    found = tuple(int(part) for part in parts)
    if len(frozenset(found)) != len(found):
        raise InvalidTarget(f"{flag} {text}: names a node twice")
    return found


def spread(partitions: Sequence[tuple[str, int]], replicas: tuple[int, ...]) -> Plan:
    """The same nodes for each partition; each goes one further for its preferred leader."""
    plan: Plan = {}
    for topic, partition in partitions:
        at = partition % len(replicas) if len(partitions) > 1 else 0
        plan[topic, partition] = replicas[at:] + replicas[:at]
    return plan


def read_plan(path: str) -> Plan:
    """Read a plan in the form that Kafka's own tool writes and reads."""
    try:
        content = Path(path).read_bytes()[: PLAN_BYTES_MAX + 1]
        given = json.loads(content)
        rows = given["partitions"]
        plan = {(row["topic"], row["partition"]): tuple(row["replicas"]) for row in rows}
    except OSError as error:
        raise InvalidTarget(f"{path}: {error.strerror or error}") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise InvalidTarget(
            f'{path} is no plan: expected {{"version": 1, "partitions": '
            '[{"topic": "t", "partition": 0, "replicas": [1, 2, 3]}]}'
        ) from None
    if not plan:
        raise InvalidTarget(f"{path} moves nothing")
    if len(plan) != len(rows):
        raise InvalidTarget(f"{path} names a partition twice")
    for (topic, partition), replicas in plan.items():
        if not (
            isinstance(topic, str) and _is_number(partition) and replicas and all(map(_is_number, replicas))
        ):
            raise InvalidTarget(f"{path}: {topic}:{partition} has no list of node ids")
    return plan


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def bytes_per_second(flag: str, text: str) -> int:
    """Read `10485760`, `10M` or `10Mi`, with or without `B/s`."""
    plain = text.strip().lower().removesuffix("/s").removesuffix("b")
    digits = plain.rstrip("kmgi")
    factor = UNITS.get(plain[len(digits) :])
    if factor is None or not (digits.isascii() and digits.isdigit()) or not int(digits):
        raise InvalidTarget(f"{flag} {text}: expected bytes per second, as in {flag} 50M")
    return int(digits) * factor


class AdminClient:
    """One connection to one broker, which returns what the whole cluster knows."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._connection, self.address = _any_connection(endpoint)
        # The same broker, for other clients.
        self.endpoint = Endpoint(self.address, endpoint.options)

    def ask(self, request: Message) -> Any:
        """Send a request and return the response; ClientError if there is none."""
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

    def registered(self, answer: DescribeClusterResponse) -> dict[int, BrokerInfo]:
        """The brokers by number."""
        return {
            one.broker_id: BrokerInfo(
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

    def configure_broker(self, node_id: int, values: Mapping[str, str]) -> None:
        """Set what concerns one broker alone."""
        configs = tuple(
            IncrementalAlterConfigsRequestConfig(name=name, config_operation=CONFIG_SET, value=value)
            for name, value in values.items()
        )
        resource = IncrementalAlterConfigsRequestResource(
            resource_type=BROKER_RESOURCE, resource_name=str(node_id), configs=configs
        )
        answer = self.ask(IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False))
        for row in answer.responses:
            expect(f"broker {node_id}", row.error_code, row.error_message)

    def log_dirs_with_scrub(self) -> Sequence[DescribeLogDirsResponseDirectory]:
        """The replicas of the broker at the other end, and what it knows of damage in them."""
        answer = self.ask(DescribeLogDirsRequest(topics=None, with_scrub=True))
        expect("the log directories", answer.error_code, None)
        found: Sequence[DescribeLogDirsResponseDirectory] = answer.results
        return found

    def partitions(self) -> list[PartitionOverview]:
        """Every partition of every topic, internal ones too."""
        answer: MetadataResponse = self.ask(MetadataRequest(topics=None, allow_auto_topic_creation=False))
        names = [topic.name or "" for topic in answer.topics]
        minimums = self._minimums(names)
        return [
            PartitionOverview(
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

    def moves(self) -> list[Reassignment]:
        """The reassignments under way, without how far they are; a broker that can move nothing has none."""
        if LIST_MOVES not in self._connection.versions:
            return []
        answer = self.ask(ListPartitionReassignmentsRequest(topics=None))
        expect("the reassignments", answer.error_code, answer.error_message)
        return [
            Reassignment(
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
def admin_client(bootstrap: str) -> Iterator[AdminClient]:
    """A connection to the first of the addresses that responds, for as long as it is needed."""
    admin = AdminClient(endpoint(bootstrap, None))
    try:
        yield admin
    finally:
        admin.close()


def layout_of(partitions: Iterable[PartitionOverview]) -> Layout:
    """Which partitions each topic has, and on which nodes."""
    layout: dict[str, dict[int, tuple[int, ...]]] = {}
    for one in partitions:
        layout.setdefault(one.topic, {})[one.partition] = one.replicas
    return layout


def is_drained(address: str, node_id: int) -> bool:
    """Whether a broker is kept empty, which only it knows; False if it does not respond."""
    with suppress(ClientError), admin_client(address) as admin:
        return admin.says_it_is_drained(node_id)
    return False


def sizes_on(address: str, places: Sequence[Place]) -> Mapping[Place, int]:
    """How many bytes one broker holds of these partitions; nothing if it does not respond."""
    topics: dict[str, list[int]] = {}
    for topic, partition in places:
        topics.setdefault(topic, []).append(partition)
    request = DescribeLogDirsRequest(
        topics=tuple(
            DescribeLogDirsRequestTopic(topic=topic, partitions=tuple(partitions))
            for topic, partitions in topics.items()
        )
    )
    with suppress(ClientError), admin_client(address) as admin:
        return {
            (topic.name, one.partition_index): one.partition_size
            for directory in admin.ask(request).results
            for topic in directory.topics
            for one in topic.partitions
        }
    return {}


def expect(what: str, code: int, message: str | None) -> None:
    """Raise the error of a response."""
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
            return BrokerConnection(address, security=security_of(endpoint)), _address(*address)
        except (BrokerUnreachable, LoginFailed) as error:
            failure = error
        except ClientError:
            failure = BrokerUnreachable(f"{_address(*address)} does not respond as a Kafka broker")
    if failure is not None and len(addresses) == 1:
        raise failure
    raise no_broker(endpoint.bootstrap, "none of them responds")
