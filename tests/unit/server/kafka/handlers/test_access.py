"""A secured listener: logins, access rules, passwords and quotas, by Kafka's own requests."""

import secrets
from typing import TYPE_CHECKING, TypeVar

import pytest

from penstock.core.metadata.access import ScramMechanism
from penstock.core.metadata.commands import AlterScramCredentials
from penstock.core.model import SECOND
from penstock.core.protocol import ErrorCode, Message
from penstock.core.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityPart,
    AlterClientQuotasRequestEntry,
    AlterClientQuotasRequestOperation,
    AlterClientQuotasResponse,
)
from penstock.core.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsRequestDeletion,
    AlterUserScramCredentialsRequestUpsertion,
    AlterUserScramCredentialsResponse,
)
from penstock.core.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.core.protocol.messages.create_acls import (
    CreateAclsRequest,
    CreateAclsRequestAcl,
    CreateAclsResponse,
)
from penstock.core.protocol.messages.delete_acls import (
    DeleteAclsRequest,
    DeleteAclsRequestFilter,
    DeleteAclsResponse,
)
from penstock.core.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from penstock.core.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasRequestComponent,
    DescribeClientQuotasResponse,
)
from penstock.core.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from penstock.core.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from penstock.core.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from penstock.core.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from penstock.core.sasl import credential_of
from penstock.core.sasl.scram import ScramClient, salted_password
from penstock.security.options import SecurityOptions

if TYPE_CHECKING:
    from tests.unit.server.kafka.handlers.conftest import Client, Stage

M = TypeVar("M", bound=Message)
SCRAM = ScramMechanism.SCRAM_SHA_256
MECHANISMS = ("SCRAM-SHA-256", "PLAIN")
EVERYTHING = DescribeAclsRequest(
    resource_type_filter=1,
    resource_name_filter=None,
    pattern_type_filter=1,
    principal_filter=None,
    host_filter=None,
    operation=1,
    permission_type=1,
)


def secured(stage_with: type["Stage"], *, reauthenticate_ms: int = 0) -> "Stage":
    options = SecurityOptions(
        enabled=True, super_users=("admin",), mechanisms=MECHANISMS, reauthenticate_ms=reauthenticate_ms
    )
    stage = stage_with(security=options)
    for user in ("admin", "alice"):
        stage.submit(AlterScramCredentials(user, (credential_of(user, SCRAM, f"{user}-pw", b"salt"),)))
    return stage


def exchange(client: "Client", content: bytes) -> SaslAuthenticateResponse:
    return client.ask(SaslAuthenticateRequest(auth_bytes=content), SaslAuthenticateResponse, 2)


def log_in(client: "Client", user: str, password: str | None = None) -> SaslAuthenticateResponse:
    agreed = client.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), SaslHandshakeResponse, 1)
    assert agreed.error_code == ErrorCode.NONE
    scram = ScramClient(SCRAM, user, password or f"{user}-pw", secrets.token_hex(8))
    last = exchange(client, scram.last(exchange(client, scram.first()).auth_bytes))
    assert last.error_code != ErrorCode.NONE or scram.is_verified(last.auth_bytes)
    return last


def as_user(stage: "Stage", user: str) -> "Client":
    client = stage.client()
    assert log_in(client, user).error_code == ErrorCode.NONE
    return client


def acl(
    name: str, operation: int, principal: str = "User:alice", *, kind: int = 2, permission: int = 3
) -> CreateAclsRequestAcl:
    return CreateAclsRequestAcl(
        resource_type=kind,
        resource_name=name,
        resource_pattern_type=3,
        principal=principal,
        host="*",
        operation=operation,
        permission_type=permission,
    )


def topic_codes(client: "Client", *names: str) -> list[int]:
    topics = tuple(MetadataRequestTopic(name=name) for name in names)
    answer = client.ask(MetadataRequest(topics=topics, allow_auto_topic_creation=False), MetadataResponse, 12)
    return [topic.error_code for topic in answer.topics]


def test_before_a_login_nothing_is_served_but_what_leads_to_one(stage_with: type["Stage"]) -> None:
    stage = secured(stage_with)
    polite, rude = stage.client(), stage.client()

    assert polite.ask(ApiVersionsRequest(), ApiVersionsResponse, 0).error_code == ErrorCode.NONE
    rude.send(MetadataRequest(topics=()), 12)
    stage.run()

    assert rude.tcp.is_closed
    assert not rude.tcp.written
    assert not polite.tcp.is_closed


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_right_password_logs_in_and_another_ends_the_connection(
    stage_with: type["Stage"], mechanism: str
) -> None:
    stage = secured(stage_with)

    def attempt(password: str) -> tuple[int, bool]:
        client = stage.client()
        if mechanism == "PLAIN":
            client.ask(SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse, 1)
            code = exchange(client, f"\x00alice\x00{password}".encode()).error_code
        else:
            code = log_in(client, "alice", password).error_code
        return code, client.tcp.is_closed

    assert attempt("alice-pw") == (ErrorCode.NONE, False)
    assert attempt("alice-pwd") == (ErrorCode.SASL_AUTHENTICATION_FAILED, True)
    assert attempt("alice-pw") == (ErrorCode.NONE, False)


def test_a_mechanism_that_is_not_offered_is_refused_with_those_that_are(stage_with: type["Stage"]) -> None:
    client = secured(stage_with).client()

    answer = client.ask(SaslHandshakeRequest(mechanism="OAUTHBEARER"), SaslHandshakeResponse, 1)

    assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert answer.mechanisms == MECHANISMS


def test_a_login_without_a_handshake_is_refused(stage_with: type["Stage"]) -> None:
    client = secured(stage_with).client()

    assert exchange(client, b"\x00alice\x00alice-pw").error_code == ErrorCode.ILLEGAL_SASL_STATE


def test_a_login_ends_unless_it_is_made_again_in_time(stage_with: type["Stage"]) -> None:
    stage = secured(stage_with, reauthenticate_ms=60_000)
    patient, forgetful = stage.client(), stage.client()
    assert 0 < log_in(patient, "admin").session_lifetime_ms <= 60_000
    log_in(forgetful, "admin")

    stage.run(30 * SECOND)
    assert log_in(patient, "admin").error_code == ErrorCode.NONE
    stage.run(31 * SECOND)

    assert topic_codes(patient) == []
    forgetful.send(MetadataRequest(topics=()), 12)
    stage.run()
    assert forgetful.tcp.is_closed


def test_nobody_becomes_somebody_else_on_a_connection(stage_with: type["Stage"]) -> None:
    client = as_user(secured(stage_with), "alice")

    assert log_in(client, "admin").error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert client.tcp.is_closed


def test_a_user_sees_what_a_rule_lets_it_see_and_no_longer_than_that(stage_with: type["Stage"]) -> None:
    stage = secured(stage_with)
    admin, alice = as_user(stage, "admin"), as_user(stage, "alice")
    unknown, denied = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert topic_codes(admin, "orders", "logs") == [unknown, unknown]
    assert topic_codes(alice, "orders", "logs") == [denied, denied]

    created = admin.ask(CreateAclsRequest(creations=(acl("orders", 3),)), CreateAclsResponse, 3)
    assert [row.error_code for row in created.results] == [ErrorCode.NONE]
    assert topic_codes(alice, "orders", "logs") == [unknown, denied]

    wanted = DeleteAclsRequestFilter(
        resource_type_filter=2,
        resource_name_filter="orders",
        pattern_type_filter=2,
        principal_filter="User:alice",
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    deleted = admin.ask(DeleteAclsRequest(filters=(wanted, wanted)), DeleteAclsResponse, 3)
    assert [len(row.matching_acls) for row in deleted.filter_results] == [1, 0]
    assert topic_codes(alice, "orders", "logs") == [denied, denied]


def test_rules_are_described_and_each_wrong_one_is_told(stage_with: type["Stage"]) -> None:
    admin = as_user(secured(stage_with), "admin")
    rules = (acl("orders", 3), acl("orders", 4), acl("", 3), acl("g", 3, kind=3), acl("t", 99))

    created = admin.ask(CreateAclsRequest(creations=rules), CreateAclsResponse, 3)
    described = admin.ask(EVERYTHING, DescribeAclsResponse, 3)

    codes = [row.error_code for row in created.results]
    none, invalid = ErrorCode.NONE, ErrorCode.INVALID_REQUEST
    assert codes == [none, none, invalid, none, invalid]
    found = {
        (row.resource_type, row.resource_name): [each.operation for each in row.acls]
        for row in described.resources
    }
    assert found == {(2, "orders"): [3, 4], (3, "g"): [3]}


def test_who_may_not_alter_the_cluster_changes_and_learns_nothing(stage_with: type["Stage"]) -> None:
    alice = as_user(secured(stage_with), "alice")
    denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED

    created = alice.ask(CreateAclsRequest(creations=(acl("orders", 3),)), CreateAclsResponse, 3)
    described = alice.ask(EVERYTHING, DescribeAclsResponse, 3)
    altered = alice.ask(password("alice", b"x" * 32), AlterUserScramCredentialsResponse, 0)

    assert [row.error_code for row in created.results] == [denied]
    assert (described.error_code, described.resources) == (denied, ())
    assert [row.error_code for row in altered.results] == [denied]


def password(
    user: str, salted: bytes, mechanism: int = 1, iterations: int = 4_096
) -> AlterUserScramCredentialsRequest:
    row = AlterUserScramCredentialsRequestUpsertion(
        name=user, mechanism=mechanism, iterations=iterations, salt=b"salt", salted_password=salted
    )
    return AlterUserScramCredentialsRequest(deletions=(), upsertions=(row,))


def test_a_password_is_set_changed_and_removed(stage_with: type["Stage"]) -> None:
    stage = secured(stage_with)
    admin = as_user(stage, "admin")

    for text in ("first", "second"):
        salted = salted_password(SCRAM, text, b"salt", 4_096)
        (row,) = admin.ask(password("bob", salted), AlterUserScramCredentialsResponse, 0).results
        assert row.error_code == ErrorCode.NONE
    assert log_in(stage.client(), "bob", "first").error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert log_in(stage.client(), "bob", "second").error_code == ErrorCode.NONE
    shown = admin.ask(
        DescribeUserScramCredentialsRequest(users=None), DescribeUserScramCredentialsResponse, 0
    )
    assert [row.user for row in shown.results] == ["admin", "alice", "bob"]

    gone = AlterUserScramCredentialsRequest(
        deletions=(AlterUserScramCredentialsRequestDeletion(name="bob", mechanism=1),), upsertions=()
    )
    for code in (ErrorCode.NONE, ErrorCode.RESOURCE_NOT_FOUND):
        (row,) = admin.ask(gone, AlterUserScramCredentialsResponse, 0).results
        assert row.error_code == code
    assert log_in(stage.client(), "bob", "second").error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (password("bob", b"x" * 32, mechanism=7), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (password("bob", b"short"), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (password("bob", b"x" * 32, iterations=1), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (password("", b"x" * 32), ErrorCode.UNACCEPTABLE_CREDENTIAL),
    ],
)
def test_a_password_that_is_not_acceptable_is_refused(
    stage_with: type["Stage"], request_: AlterUserScramCredentialsRequest, code: ErrorCode
) -> None:
    admin = as_user(secured(stage_with), "admin")

    (row,) = admin.ask(request_, AlterUserScramCredentialsResponse, 0).results

    assert row.error_code == code


def quota(user: str | None, key: str, value: float, *, remove: bool = False) -> AlterClientQuotasRequest:
    part = AlterClientQuotasRequestEntityPart(entity_type="user", entity_name=user)
    change = AlterClientQuotasRequestOperation(key=key, value=value, remove=remove)
    entry = AlterClientQuotasRequestEntry(entity=(part,), ops=(change,))
    return AlterClientQuotasRequest(entries=(entry,), validate_only=False)


@pytest.mark.parametrize(
    ("match_type", "match", "users"),
    [(0, "alice", ["alice"]), (1, None, [None]), (2, None, [None, "alice"])],
)
def test_quotas_are_set_and_found(
    stage_with: type["Stage"], match_type: int, match: str | None, users: list[str | None]
) -> None:
    admin = as_user(secured(stage_with), "admin")
    for user in ("alice", None):
        (row,) = admin.ask(quota(user, "producer_byte_rate", 10), AlterClientQuotasResponse, 1).entries
        assert row.error_code == ErrorCode.NONE
    component = DescribeClientQuotasRequestComponent(entity_type="user", match_type=match_type, match=match)

    answer = admin.ask(
        DescribeClientQuotasRequest(components=(component,), strict=True), DescribeClientQuotasResponse, 1
    )

    assert [row.entity[0].entity_name for row in answer.entries or ()] == users
    assert {row.values[0].value for row in answer.entries or ()} == {10.0}


@pytest.mark.parametrize(
    ("asked", "found"), [("2001:db8:0::1", ["2001:db8::1"]), ("2001:db8::2", []), ("nonsense", [])]
)
def test_a_quota_of_an_address_is_found_however_that_is_written(
    stage_with: type["Stage"], asked: str, found: list[str]
) -> None:
    admin = as_user(secured(stage_with), "admin")
    part = AlterClientQuotasRequestEntityPart(entity_type="ip", entity_name="2001:DB8::1")
    change = AlterClientQuotasRequestOperation(key="connection_creation_rate", value=5, remove=False)
    entry = AlterClientQuotasRequestEntry(entity=(part,), ops=(change,))
    admin.ask(AlterClientQuotasRequest(entries=(entry,), validate_only=False), AlterClientQuotasResponse, 1)
    component = DescribeClientQuotasRequestComponent(entity_type="ip", match_type=0, match=asked)

    answer = admin.ask(
        DescribeClientQuotasRequest(components=(component,), strict=True), DescribeClientQuotasResponse, 1
    )

    assert [row.entity[0].entity_name for row in answer.entries or ()] == found


def test_a_quota_that_cannot_be_is_refused(stage_with: type["Stage"]) -> None:
    admin = as_user(secured(stage_with), "admin")

    (row,) = admin.ask(quota("alice", "no_such_rate", 10), AlterClientQuotasResponse, 1).entries

    assert row.error_code == ErrorCode.INVALID_REQUEST


def test_an_address_that_connects_too_often_is_served_later(stage_with: type["Stage"]) -> None:
    stage = secured(stage_with)
    admin = as_user(stage, "admin")
    part = AlterClientQuotasRequestEntityPart(entity_type="ip", entity_name="127.0.0.1")
    change = AlterClientQuotasRequestOperation(key="connection_creation_rate", value=0.01, remove=False)
    entry = AlterClientQuotasRequestEntry(entity=(part,), ops=(change,))
    admin.ask(AlterClientQuotasRequest(entries=(entry,), validate_only=False), AlterClientQuotasResponse, 1)

    early = stage.client()

    assert early.tcp.is_paused
    stage.run(200 * SECOND)
    assert not early.tcp.is_paused


def test_a_client_beyond_its_share_of_time_is_told_to_wait(stage_with: type["Stage"]) -> None:
    stage = secured(stage_with)
    admin, alice = as_user(stage, "admin"), as_user(stage, "alice")
    # In virtual time requests take none: changes to the cluster are what can be counted.
    admin.ask(quota("alice", "controller_mutation_rate", 0.001), AlterClientQuotasResponse, 1)
    rules = CreateAclsRequest(creations=(acl("kafka-cluster", 7, kind=4),))
    admin.ask(rules, CreateAclsResponse, 3)

    first = alice.ask(CreateAclsRequest(creations=(acl("a", 3),)), CreateAclsResponse, 3)

    assert first.throttle_time_ms > 0
    assert admin.ask(rules, CreateAclsResponse, 3).throttle_time_ms == 0
