"""The matrix: every API by nobody, a user without rights, a user with those it needs, and a super user.

`NEEDED` says what each API asks for, as Kafka documents it, in every version. Requests are built from the
message table, and an API that is added tomorrow has no row, so that this fails.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from benchmarks.attacks.largest_requests import ArrayPath, RequestBuilder, arrays_of
from penstock.core.model import SECOND
from penstock.core.protocol import Api, ErrorCode, RequestHeader, request_frame
from penstock.core.protocol.messages.create_acls import (
    CreateAclsRequest,
    CreateAclsRequestAcl,
    CreateAclsResponse,
)
from penstock.core.protocol.messages.create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestTopic,
    CreateTopicsResponse,
)
from penstock.core.protocol.schema import ZERO_UUID
from penstock.security import AclOperation, Principal, ResourceType
from penstock.security.options import SecurityOptions
from penstock.server.kafka.handlers import every_route
from penstock.server.kafka.listener import ListenerSecurity

if TYPE_CHECKING:
    from tests.unit.server.kafka.handlers.conftest import Client, Stage

APIS = [route.api for route in every_route().all()]
# What leads to a login.
OPEN_TO_NOBODY = {"ApiVersions", "SaslHandshake", "SaslAuthenticate"}
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
TRANSACTION = ResourceType.TRANSACTIONAL_ID
READ, WRITE, CREATE, DELETE = AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE, AclOperation.DELETE
ALTER, DESCRIBE = AclOperation.ALTER, AclOperation.DESCRIBE
ALTER_CONFIGS, DESCRIBE_CONFIGS = AclOperation.ALTER_CONFIGS, AclOperation.DESCRIBE_CONFIGS
CLUSTER_NAME = "kafka-cluster"
NOT_ALLOWED = {
    TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    TRANSACTION: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
ATTEMPTS_MAX = 3
REFUSALS = frozenset(int(code) for code in NOT_ALLOWED.values())


NO_VALUES: Mapping[str, Any] = {}


class Right(NamedTuple):
    """An operation on resources of a kind."""

    kind: ResourceType
    operation: AclOperation


# What a request must be allowed to do, all of it. Whoever lacks the first is told so by its kind's error.
NEEDED: dict[str, tuple[Right, ...]] = {
    "Produce": (Right(TOPIC, WRITE),),
    "Fetch": (Right(TOPIC, READ),),
    "ListOffsets": (Right(TOPIC, DESCRIBE),),
    "Metadata": (Right(TOPIC, DESCRIBE),),
    "OffsetCommit": (Right(GROUP, READ), Right(TOPIC, READ)),
    "OffsetFetch": (Right(GROUP, DESCRIBE), Right(TOPIC, DESCRIBE)),
    "FindCoordinator": (Right(GROUP, DESCRIBE),),
    "JoinGroup": (Right(GROUP, READ),),
    "Heartbeat": (Right(GROUP, READ),),
    "LeaveGroup": (Right(GROUP, READ),),
    "SyncGroup": (Right(GROUP, READ),),
    "DescribeGroups": (Right(GROUP, DESCRIBE),),
    "CreateTopics": (Right(TOPIC, CREATE),),
    "DeleteTopics": (Right(TOPIC, DELETE),),
    "DeleteRecords": (Right(TOPIC, DELETE),),
    "InitProducerId": (Right(TRANSACTION, WRITE),),
    "OffsetForLeaderEpoch": (Right(TOPIC, DESCRIBE),),
    # Brokers ask for many transactions at once; clients, in versions before: `BEFORE`.
    "AddPartitionsToTxn": (Right(CLUSTER, AclOperation.CLUSTER_ACTION),),
    "AddOffsetsToTxn": (Right(TRANSACTION, WRITE), Right(GROUP, READ)),
    "EndTxn": (Right(TRANSACTION, WRITE),),
    "WriteTxnMarkers": (Right(CLUSTER, AclOperation.CLUSTER_ACTION),),
    "TxnOffsetCommit": (Right(TRANSACTION, WRITE), Right(GROUP, READ), Right(TOPIC, READ)),
    "DescribeAcls": (Right(CLUSTER, DESCRIBE),),
    "CreateAcls": (Right(CLUSTER, ALTER),),
    "DeleteAcls": (Right(CLUSTER, ALTER),),
    "DescribeConfigs": (Right(TOPIC, DESCRIBE_CONFIGS),),
    "AlterConfigs": (Right(TOPIC, ALTER_CONFIGS),),
    "IncrementalAlterConfigs": (Right(TOPIC, ALTER_CONFIGS),),
    "AlterReplicaLogDirs": (Right(CLUSTER, ALTER),),
    "DescribeLogDirs": (Right(CLUSTER, DESCRIBE),),
    "CreatePartitions": (Right(TOPIC, ALTER),),
    "DeleteGroups": (Right(GROUP, DELETE),),
    "ElectLeaders": (Right(CLUSTER, ALTER),),
    "AlterPartitionReassignments": (Right(CLUSTER, ALTER),),
    "ListPartitionReassignments": (Right(CLUSTER, DESCRIBE),),
    "OffsetDelete": (Right(GROUP, DELETE),),
    "DescribeClientQuotas": (Right(CLUSTER, DESCRIBE_CONFIGS),),
    "AlterClientQuotas": (Right(CLUSTER, ALTER_CONFIGS),),
    "DescribeUserScramCredentials": (Right(CLUSTER, DESCRIBE),),
    "AlterUserScramCredentials": (Right(CLUSTER, ALTER),),
    "DescribeQuorum": (Right(CLUSTER, DESCRIBE),),
    "UpdateFeatures": (Right(CLUSTER, ALTER),),
    "DescribeProducers": (Right(TOPIC, READ),),
    "UnregisterBroker": (Right(CLUSTER, ALTER),),
    "DescribeTransactions": (Right(TRANSACTION, DESCRIBE),),
    "ConsumerGroupHeartbeat": (Right(GROUP, READ), Right(TOPIC, DESCRIBE)),
    "ConsumerGroupDescribe": (Right(GROUP, DESCRIBE),),
    "ListConfigResources": (Right(CLUSTER, DESCRIBE_CONFIGS),),
    "DescribeTopicPartitions": (Right(TOPIC, DESCRIBE),),
    "ShareGroupHeartbeat": (Right(GROUP, READ), Right(TOPIC, DESCRIBE)),
    "ShareGroupDescribe": (Right(GROUP, DESCRIBE),),
    "ShareFetch": (Right(GROUP, READ),),
    "ShareAcknowledge": (Right(GROUP, READ),),
    "AddRaftVoter": (Right(CLUSTER, ALTER),),
    "RemoveRaftVoter": (Right(CLUSTER, ALTER),),
    "DescribeShareGroupOffsets": (Right(GROUP, DESCRIBE),),
    "AlterShareGroupOffsets": (Right(GROUP, READ),),
    "DeleteShareGroupOffsets": (Right(GROUP, DELETE),),
    "BatchCommit": (Right(TRANSACTION, WRITE),),
    "QueueReceive": (Right(GROUP, READ), Right(TOPIC, READ)),
    # And to read the topics of the records: test_queues.
    "QueueSettle": (Right(GROUP, READ),),
    "QueueDescribe": (Right(GROUP, DESCRIBE), Right(TOPIC, DESCRIBE)),
    "QueueAlter": (Right(GROUP, READ), Right(TOPIC, READ)),
    "QueuePeek": (Right(GROUP, DESCRIBE), Right(TOPIC, READ)),
    "QueueRedrive": (Right(TOPIC, READ), Right(TOPIC, WRITE)),
    "DelayRecords": (Right(TOPIC, WRITE),),
    "CreateApiKey": (Right(CLUSTER, ALTER),),
    "DeleteApiKey": (Right(CLUSTER, ALTER),),
    "ListApiKeys": (Right(CLUSTER, DESCRIBE),),
    "RotateMasterKey": (Right(CLUSTER, ALTER),),
    "DescribeMasterKeys": (Right(CLUSTER, DESCRIBE),),
}
FROM_CLIENTS = (Right(TRANSACTION, WRITE), Right(TOPIC, WRITE))
# Versions from which on `NEEDED` is asked for as it says, and what is before.
SINCE = {"AddPartitionsToTxn": 4, "DescribeLogDirs": 3, "Metadata": 12}
BEFORE: dict[str, tuple[tuple[Right, ...], Mapping[str, Any]]] = {
    # Of one client, for one transaction.
    "AddPartitionsToTxn": (FROM_CLIENTS, NO_VALUES),
    # Nobody may name a topic by its id.
    "Metadata": ((Right(TOPIC, DESCRIBE),), {"topic_id": ZERO_UUID}),
}
# What else a request may be about, from which version on: then it needs other rights.
VARIANTS: dict[str, tuple[tuple[str, int, tuple[Right, ...], Mapping[str, Any]], ...]] = {
    "Produce": (("in a transaction", 3, FROM_CLIENTS, {"transactional_id": "t0"}),),
    "FindCoordinator": (
        ("of a transaction", 1, (Right(TRANSACTION, DESCRIBE),), {"key_type": 1}),
        ("of a share partition", 6, (Right(CLUSTER, AclOperation.CLUSTER_ACTION),), {"key_type": 2}),
    ),
    "InitProducerId": (
        ("no transaction", 0, (Right(CLUSTER, AclOperation.IDEMPOTENT_WRITE),), {"transactional_id": None}),
    ),
    "DescribeConfigs": (
        ("broker", 0, (Right(CLUSTER, DESCRIBE_CONFIGS),), {"resource_type": 4, "resource_name": "1"}),
        ("group", 0, (Right(GROUP, DESCRIBE_CONFIGS),), {"resource_type": 32}),
    ),
    "AlterConfigs": (
        ("broker", 0, (Right(CLUSTER, ALTER_CONFIGS),), {"resource_type": 4, "resource_name": "1"}),
    ),
    "IncrementalAlterConfigs": (
        ("broker", 0, (Right(CLUSTER, ALTER_CONFIGS),), {"resource_type": 4, "resource_name": "1"}),
        ("group", 0, (Right(GROUP, ALTER_CONFIGS),), {"resource_type": 32}),
    ),
}
# Whoever has logged in may ask: the answer has what they may see, or is the same for all.
OPEN_TO_USERS = {
    *OPEN_TO_NOBODY,
    "DescribeCluster",
    "ListGroups",
    "ListTransactions",
    "ListDelays",
    # Whoever may not write to its topic is told that there is no such delay (test_delays).
    "CancelDelays",
    "GetTelemetrySubscriptions",
    "PushTelemetry",
    # Refused to everyone: there are no delegation tokens.
    "CreateDelegationToken",
    "RenewDelegationToken",
    "ExpireDelegationToken",
    "DescribeDelegationToken",
}
# Fields that must make sense before anybody is asked for rights.
VALUES: dict[str, dict[str, Any]] = {
    "ShareFetch": {"group_id": "t0", "member_id": "member"},
    "ShareAcknowledge": {"group_id": "t0", "member_id": "member"},
    "QueueSettle": {
        "receipts": ("t0/0/0/1",),
        "leases": (),
        "transactional_id": None,
        "producer_id": -1,
        "producer_epoch": -1,
    },
}


class Case(NamedTuple):
    """Requests of an API that need the same rights."""

    api: Api
    versions: tuple[int, ...]
    needed: tuple[Right, ...]
    values: Mapping[str, Any] = NO_VALUES
    about: str = ""

    def __str__(self) -> str:
        return f"{self.api.name}-{self.about}" if self.about else self.api.name


def _cases() -> Iterator[Case]:
    for api in APIS:
        name, versions = api.name, tuple(api.versions)
        since = SINCE.get(name, 0)
        if name in NEEDED:
            yield Case(api, tuple(each for each in versions if each >= since), NEEDED[name])
        if name in BEFORE:
            needed, values = BEFORE[name]
            yield Case(api, tuple(each for each in versions if each < since), needed, values, "before")
        for about, first, needed, values in VARIANTS.get(name, ()):
            yield Case(api, tuple(each for each in versions if each >= first), needed, values, about)


def codes_in(part: Any) -> set[int]:
    """Every error code in an answer."""
    if isinstance(part, tuple | list):
        return set().union(*map(codes_in, part))
    found = set()
    for name in getattr(part, "__struct_fields__", ()):
        value = getattr(part, name)
        found |= {int(value)} if name.endswith("error_code") or name == "result_code" else codes_in(value)
    return found


class Matrix:
    """A secured node with a few topics, and requests of each API."""

    def __init__(self, stage: "Stage") -> None:
        self._stage = stage
        topics = tuple(
            CreateTopicsRequestTopic(
                name=f"t{number}", num_partitions=1, replication_factor=1, assignments=(), configs=()
            )
            for number in range(3)
        )
        create = CreateTopicsRequest(topics=topics, timeout_ms=60_000)
        created = self.client("admin").ask(create, CreateTopicsResponse, 7)
        self._topic_ids = tuple(topic.topic_id for topic in created.topics)

    def client(self, user: str) -> "Client":
        """A connection of somebody who has logged in."""
        client = self._stage.client(security=ListenerSecurity())
        client.log_in(Principal("User", user))
        return client

    def grant(self, user: str, rights: tuple[Right, ...]) -> None:
        rules = tuple(
            CreateAclsRequestAcl(
                resource_type=right.kind,
                resource_name=CLUSTER_NAME if right.kind is CLUSTER else "*",
                resource_pattern_type=3,
                principal=f"User:{user}",
                host="*",
                operation=right.operation,
                permission_type=3,
            )
            for right in rights
        )
        made = self.client("admin").ask(CreateAclsRequest(creations=rules), CreateAclsResponse, 3)
        assert {row.error_code for row in made.results} <= {ErrorCode.NONE}

    def refusals(self, user: str, case: "Case", version: int) -> set[int]:
        """Which rights the user is told to lack, whatever the request is filled with."""
        frames = self.frames(case.api, version, case.values)
        return set().union(*(self._codes(user, case.api, version, frame) for frame in frames)) & REFUSALS

    def _codes(self, user: str, api: Api, version: int, frame: bytearray) -> set[int]:
        for _ in range(ATTEMPTS_MAX):
            client = self.client(user)
            for _ in client.feed(bytearray(frame)):
                pass
            self._stage.world.run(10 * SECOND, lambda: client.has_answer or client.tcp.is_closed)  # noqa: B023 - called at once
            found = codes_in(client.receive(api.response, version))
            if ErrorCode.COORDINATOR_NOT_AVAILABLE not in found:
                break
            # The first one that asks has its topic made.
            self._stage.run()
        return found

    def frames(self, api: Api, version: int, values: Mapping[str, Any] = NO_VALUES) -> list[bytearray]:
        header = RequestHeader(api.key, version, 7, "test")
        paths = [ArrayPath(()), *arrays_of(api.request.__schema__, version)]
        requests = [
            RequestBuilder(api, version, path, "existing", self._topic_ids).build(1) for path in paths
        ]
        changes = {**VALUES.get(api.name, {}), **values}
        return [request_frame(api, header, _changed(request, changes)) for request in requests]


def _changed(part: Any, changes: Mapping[str, Any]) -> Any:
    """The same with other values of these fields, wherever they are."""
    if isinstance(part, tuple):
        return tuple(_changed(each, changes) for each in part)
    if not hasattr(part, "__struct_fields__"):
        return part
    fields = {name: getattr(part, name) for name in part.__struct_fields__}
    return type(part)(
        **{
            name: changes[name] if name in changes else _changed(value, changes)
            for name, value in fields.items()
        }
    )


@pytest.fixture
def matrix(stage_with: type["Stage"]) -> Matrix:
    security = SecurityOptions(enabled=True, super_users=("admin",), mechanisms=("SCRAM-SHA-256",))
    return Matrix(stage_with(security=security))


def test_every_api_says_what_it_needs() -> None:
    names = {api.name for api in APIS}

    assert names == NEEDED.keys() | OPEN_TO_USERS
    assert not NEEDED.keys() & OPEN_TO_USERS


def test_nobody_gets_anything_but_what_leads_to_a_login(matrix: Matrix, stage_with: type["Stage"]) -> None:
    security = SecurityOptions(enabled=True, super_users=("admin",), mechanisms=("SCRAM-SHA-256",))
    stage = stage_with(security=security)
    answered = set()
    for api, version in [(each, version) for each in APIS for version in each.versions]:
        client = stage.client()
        for _ in client.feed(matrix.frames(api, version)[0]):
            pass
        stage.world.run(SECOND, lambda: client.has_answer or client.tcp.is_closed)  # noqa: B023 - called at once
        assert client.has_answer or client.tcp.is_closed, (api.name, version)
        if client.has_answer:
            answered.add(api.name)

    assert answered == OPEN_TO_NOBODY


@pytest.mark.parametrize("case", list(_cases()), ids=str)
def test_an_api_is_refused_without_its_rights_and_served_with_them(matrix: Matrix, case: Case) -> None:
    matrix.grant("alice", case.needed)

    for version in case.versions:
        assert NOT_ALLOWED[case.needed[0].kind] in matrix.refusals("bob", case, version), version
    for version in case.versions:
        assert matrix.refusals("alice", case, version) == set(), version
        assert matrix.refusals("admin", case, version) == set(), version


@pytest.mark.parametrize(
    ("case", "missing"),
    [(case, right) for case in _cases() for right in case.needed if len(case.needed) > 1],
    ids=lambda value: str(value) if isinstance(value, Case) else f"{value.kind.name}-{value.operation.name}",
)
def test_an_api_is_refused_if_one_right_is_missing(matrix: Matrix, case: Case, missing: Right) -> None:
    matrix.grant("alice", tuple(right for right in case.needed if right != missing))

    for version in case.versions:
        assert NOT_ALLOWED[missing.kind] in matrix.refusals("alice", case, version), version


@pytest.mark.parametrize("api", [api for api in APIS if api.name in OPEN_TO_USERS], ids=lambda api: api.name)
def test_what_is_open_to_users_asks_for_no_right(matrix: Matrix, api: Api) -> None:
    for version in api.versions:
        assert matrix.refusals("bob", Case(api, (version,), ()), version) == set(), version


def test_log_dirs_are_not_shown_by_versions_that_cannot_say_why(matrix: Matrix) -> None:
    (api,) = [each for each in APIS if each.name == "DescribeLogDirs"]
    for version in range(api.versions[0], SINCE[api.name]):
        shown = {}
        for user in ("bob", "admin"):
            client = matrix.client(user)
            for _ in client.feed(matrix.frames(api, version)[0]):
                pass
            described: Any = client.receive(api.response, version)
            shown[user] = bool(described.results)

        assert shown == {"bob": False, "admin": True}
