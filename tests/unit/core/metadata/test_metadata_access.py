"""Access rules, credentials, API keys and quotas as facts of the cluster."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from penstock.core.metadata import EMPTY_IMAGE, ControllerConfig, MetadataMachine, Ok
from penstock.core.metadata import replay as replayed
from penstock.core.metadata import snapshot as snapshot_of
from penstock.core.metadata.access import (
    AclBinding,
    AclFilter,
    AclOperation,
    AclPermission,
    ApiKey,
    PatternType,
    ResourceType,
    ScramCredential,
    ScramMechanism,
    entity_key,
)
from penstock.core.metadata.commands import (
    AddFirstAdministrator,
    AlterClientQuotas,
    AlterScramCredentials,
    CreateAcls,
    CreateApiKey,
    DeleteAcls,
    DeleteApiKey,
    DeletedAcls,
)
from penstock.core.model import ApiError, ErrorKind, Timestamp
from tests.unit.core.metadata.clusters import cluster, perform

READ_ORDERS = AclBinding(
    ResourceType.TOPIC,
    PatternType.LITERAL,
    "orders",
    "User:alice",
    "*",
    AclOperation.READ,
    AclPermission.ALLOW,
)
WRITE_LOGS = AclBinding(
    ResourceType.TOPIC,
    PatternType.PREFIXED,
    "logs-",
    "User:bob",
    "127.0.0.1",
    AclOperation.WRITE,
    AclPermission.DENY,
)
SHA_256 = ScramMechanism.SCRAM_SHA_256
PASSWORD = ScramCredential("alice", SHA_256, b"salt", 4_096, b"s" * 32, b"k" * 32)
ROOT = ScramCredential("root", SHA_256, b"salt", 4_096, b"s" * 32, b"k" * 32)
KEY = ApiKey("k1", "alice", b"d" * 32, Timestamp(1))


def but(value: Any, **changes: Any) -> Any:
    return msgspec.structs.replace(value, **changes)


def refusal(machine: MetadataMachine, command: Any) -> ErrorKind:
    before = machine.image
    reply = perform(machine, command)
    assert isinstance(reply, ApiError)
    assert machine.image == before
    return reply.kind


def test_rules_are_added_once_and_removed_by_filter() -> None:
    machine = cluster()

    assert perform(machine, CreateAcls((READ_ORDERS, WRITE_LOGS, READ_ORDERS))) == Ok()
    assert perform(machine, CreateAcls((READ_ORDERS,))) == Ok()
    assert machine.image.acls.keys() == [READ_ORDERS, WRITE_LOGS]

    reply = perform(machine, DeleteAcls((AclFilter(principal="User:bob"), AclFilter(), AclFilter())))
    assert reply == DeletedAcls(((WRITE_LOGS,), (READ_ORDERS,), ()))
    assert len(machine.image.acls) == 0


@pytest.mark.parametrize(
    ("filter_", "taken"),
    [
        (AclFilter(name="orders"), [READ_ORDERS]),
        (AclFilter(name="orders", pattern=PatternType.PREFIXED), []),
        (AclFilter(name="logs-eu", matches_name=True), [WRITE_LOGS]),
        (AclFilter(name="logs-eu"), []),
        (AclFilter(name="log", matches_name=True), []),
        (AclFilter(pattern=PatternType.PREFIXED), [WRITE_LOGS]),
        (AclFilter(host="127.0.0.1"), [WRITE_LOGS]),
        (AclFilter(operation=AclOperation.READ, permission=AclPermission.DENY), []),
        (AclFilter(resource=ResourceType.GROUP), []),
    ],
)
def test_a_filter_takes_what_has_its_fields(filter_: AclFilter, taken: list[AclBinding]) -> None:
    assert [acl for acl in (READ_ORDERS, WRITE_LOGS) if filter_.takes(acl)] == taken


@pytest.mark.parametrize(
    "wrong",
    [
        but(READ_ORDERS, principal="alice"),
        but(READ_ORDERS, principal="User:"),
        but(READ_ORDERS, name=""),
        but(READ_ORDERS, name="x" * 501),
        but(READ_ORDERS, host="example.com"),
        but(READ_ORDERS, resource=ResourceType.CLUSTER),
        but(READ_ORDERS, resource=ResourceType.CLUSTER, name="kafka-cluster", pattern=PatternType.PREFIXED),
    ],
)
def test_one_rule_that_cannot_be_refuses_all_of_them(wrong: AclBinding) -> None:
    assert refusal(cluster(), CreateAcls((WRITE_LOGS, wrong))) is ErrorKind.INVALID_ACL


def test_a_user_has_one_credential_for_each_mechanism() -> None:
    machine = cluster()
    longer = but(PASSWORD, iterations=8_192)

    assert perform(machine, AlterScramCredentials("alice", (PASSWORD,))) == Ok()
    assert perform(machine, AlterScramCredentials("alice", (longer,))) == Ok()
    assert machine.image.credentials.items() == [(("alice", SHA_256), longer)]

    assert perform(machine, AlterScramCredentials("alice", removed=(SHA_256,))) == Ok()
    assert len(machine.image.credentials) == 0
    unknown = AlterScramCredentials("alice", removed=(SHA_256,))
    assert refusal(machine, unknown) is ErrorKind.UNKNOWN_CREDENTIAL


@pytest.mark.parametrize(
    "command",
    [
        AlterScramCredentials("", (but(PASSWORD, user=""),)),
        AlterScramCredentials("bob", (PASSWORD,)),
        AlterScramCredentials("alice", (but(PASSWORD, iterations=4_095),)),
        AlterScramCredentials("alice", (but(PASSWORD, iterations=16_385),)),
        AlterScramCredentials("alice", (but(PASSWORD, salt=b""),)),
        AlterScramCredentials("alice", (but(PASSWORD, server_key=b"short"),)),
        AlterScramCredentials("alice", (but(PASSWORD, mechanism=ScramMechanism.SCRAM_SHA_512),)),
    ],
)
def test_a_credential_that_is_not_acceptable_is_refused(command: AlterScramCredentials) -> None:
    assert refusal(cluster(), command) is ErrorKind.INVALID_CREDENTIAL


def test_an_api_key_has_an_id_of_its_own_and_goes_by_it() -> None:
    machine = cluster()

    assert perform(machine, CreateApiKey(KEY)) == Ok()
    assert refusal(machine, CreateApiKey(but(KEY, user="eve"))) is ErrorKind.INVALID_REQUEST
    assert machine.image.api_keys.get("k1") == KEY

    assert perform(machine, DeleteApiKey("k1")) == Ok()
    assert refusal(machine, DeleteApiKey("k1")) is ErrorKind.UNKNOWN_API_KEY


def test_limits_of_an_entity_are_set_and_removed_one_by_one() -> None:
    machine = cluster()
    # The order of the parts means nothing.
    entity = (("user", "alice"), ("client-id", None))
    key = entity_key((("client-id", None), ("user", "alice")))

    perform(machine, AlterClientQuotas(entity, (("producer_byte_rate", 1e6), ("request_percentage", 50.0))))
    assert machine.image.quotas.get(key) == {"producer_byte_rate": 1e6, "request_percentage": 50.0}

    perform(machine, AlterClientQuotas(entity, (("producer_byte_rate", None),), validate_only=True))
    perform(machine, AlterClientQuotas(entity, (("request_percentage", None), ("consumer_byte_rate", None))))
    assert machine.image.quotas.get(key) == {"producer_byte_rate": 1e6}

    perform(machine, AlterClientQuotas(entity, (("producer_byte_rate", None),)))
    assert len(machine.image.quotas) == 0


@pytest.mark.parametrize(
    ("entity", "limits"),
    [
        ((), (("producer_byte_rate", 1.0),)),
        ((("team", "x"),), (("producer_byte_rate", 1.0),)),
        ((("user", "a"), ("user", "b")), (("producer_byte_rate", 1.0),)),
        ((("user", ""),), (("producer_byte_rate", 1.0),)),
        ((("ip", "example.com"),), (("connection_creation_rate", 1.0),)),
        ((("ip", "127.0.0.1"),), (("producer_byte_rate", 1.0),)),
        ((("user", "a"),), (("connection_creation_rate", 1.0),)),
        ((("user", "a"),), (("producer_byte_rate", 0.0),)),
        ((("user", "a"),), (("producer_byte_rate", float("nan")),)),
        ((("user", "a"),), (("producer_byte_rate", 1.0), ("producer_byte_rate", None))),
    ],
)
def test_a_limit_that_cannot_be_is_refused(entity: Any, limits: Any) -> None:
    assert refusal(cluster(), AlterClientQuotas(entity, limits)) is ErrorKind.INVALID_REQUEST


@pytest.mark.parametrize(
    "command",
    [
        CreateAcls((READ_ORDERS,)),
        AlterScramCredentials("alice", (PASSWORD,)),
        CreateApiKey(KEY),
        AlterClientQuotas((("user", "a"),), (("producer_byte_rate", 1.0),)),
    ],
)
def test_a_cluster_keeps_no_more_than_it_may(command: Any) -> None:
    none = ControllerConfig(acls_max=0, credentials_max=0, api_keys_max=0, quota_entities_max=0)

    assert refusal(cluster(around=none), command) is ErrorKind.ACCESS_LIMIT


def test_a_snapshot_has_all_of_it() -> None:
    machine = cluster()
    perform(machine, CreateAcls((READ_ORDERS, WRITE_LOGS)))
    perform(machine, AlterScramCredentials("alice", (PASSWORD,)))
    perform(machine, CreateApiKey(but(KEY, scope=(AclOperation.READ,))))
    perform(machine, AlterClientQuotas((("user", None),), (("producer_byte_rate", 1.5),)))

    assert replayed(EMPTY_IMAGE, snapshot_of(machine.image)) == machine.image
    without = replace(machine.image, quotas=EMPTY_IMAGE.quotas)
    assert replayed(EMPTY_IMAGE, snapshot_of(without)) != machine.image


def test_secrets_are_not_in_what_is_printed() -> None:
    assert "kkkk" not in repr(PASSWORD)
    assert "dddd" not in repr(KEY)


@pytest.mark.parametrize(
    "earlier",
    [
        AlterScramCredentials("alice", (PASSWORD,)),
        CreateAcls((READ_ORDERS,)),
        CreateApiKey(KEY),
    ],
)
def test_a_cluster_in_use_takes_no_first_administrator(earlier: Any) -> None:
    machine = cluster()
    perform(machine, earlier)

    assert refusal(machine, AddFirstAdministrator("root", (ROOT,))) is ErrorKind.INVALID_REQUEST


def test_the_first_administrator_comes_with_its_rules_or_not_at_all() -> None:
    machine = cluster()
    rule = but(READ_ORDERS, principal="User:root")

    bad = AddFirstAdministrator("root", (ROOT,), (rule, but(rule, principal="root")))
    assert refusal(machine, bad) is ErrorKind.INVALID_ACL
    assert refusal(machine, AddFirstAdministrator("root", ())) is ErrorKind.INVALID_CREDENTIAL

    assert perform(machine, AddFirstAdministrator("root", (ROOT,), (rule,))) == Ok()
    assert ("root", SHA_256) in machine.image.credentials
    assert rule in machine.image.acls
