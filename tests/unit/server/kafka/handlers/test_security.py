"""What clients get who ask for security that is not set up: Kafka's answers without an authorizer."""

from typing import TYPE_CHECKING

import pytest

from penstock.core.protocol import ErrorCode, Message
from penstock.core.protocol.messages.create_acls import (
    CreateAclsRequest,
    CreateAclsRequestAcl,
    CreateAclsResponse,
)
from penstock.core.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
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
from penstock.core.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from penstock.core.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequestUser,
    DescribeUserScramCredentialsResponse,
)
from penstock.core.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from penstock.core.protocol.messages.registry import APIS
from penstock.core.protocol.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from penstock.core.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from penstock.core.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from penstock.security import AclOperation

if TYPE_CHECKING:
    from tests.unit.server.kafka.handlers.conftest import Stage

EXACT, DEFAULT, ANY = range(3)
NOT_ALLOWED = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
CLUSTER = "kafka-cluster"


@pytest.mark.parametrize(
    ("request_", "answer", "code"),
    [
        (
            DescribeAclsRequest(
                resource_type_filter=1,
                resource_name_filter=None,
                principal_filter=None,
                host_filter=None,
                operation=1,
                permission_type=1,
            ),
            DescribeAclsResponse,
            ErrorCode.SECURITY_DISABLED,
        ),
        (
            CreateDelegationTokenRequest(renewers=(), max_lifetime_ms=1),
            CreateDelegationTokenResponse,
            NOT_ALLOWED,
        ),
        (
            RenewDelegationTokenRequest(hmac=b"x", renew_period_ms=1),
            RenewDelegationTokenResponse,
            NOT_ALLOWED,
        ),
        (
            ExpireDelegationTokenRequest(hmac=b"x", expiry_time_period_ms=1),
            ExpireDelegationTokenResponse,
            NOT_ALLOWED,
        ),
        (DescribeDelegationTokenRequest(owners=None), DescribeDelegationTokenResponse, NOT_ALLOWED),
        (SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse, ErrorCode.ILLEGAL_SASL_STATE),
        (SaslAuthenticateRequest(auth_bytes=b""), SaslAuthenticateResponse, ErrorCode.ILLEGAL_SASL_STATE),
    ],
)
def test_what_is_not_set_up_is_refused_in_every_version(
    stage: "Stage", request_: Message, answer: type[Message], code: ErrorCode
) -> None:
    key = request_.__schema__.api_key
    assert key is not None

    for version in APIS[key].versions:
        response: object = stage.ask(request_, answer, version)

        assert response.error_code == code  # type: ignore[attr-defined]


def test_every_rule_to_add_or_remove_is_refused(stage: "Stage") -> None:
    rule = CreateAclsRequestAcl(
        resource_type=2, resource_name="t", principal="User:a", host="*", operation=2, permission_type=3
    )
    rules = DeleteAclsRequestFilter(
        resource_type_filter=2,
        resource_name_filter=None,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )

    created = stage.ask(CreateAclsRequest(creations=(rule, rule)), CreateAclsResponse, 3)
    deleted = stage.ask(DeleteAclsRequest(filters=(rules,)), DeleteAclsResponse, 3)

    assert [row.error_code for row in created.results] == [ErrorCode.SECURITY_DISABLED] * 2
    assert [row.error_code for row in deleted.filter_results] == [ErrorCode.SECURITY_DISABLED]


@pytest.mark.parametrize(
    ("kind", "match_type", "match", "code"),
    [
        ("user", EXACT, "alice", ErrorCode.NONE),
        ("client-id", DEFAULT, None, ErrorCode.NONE),
        ("ip", ANY, None, ErrorCode.NONE),
        ("planet", ANY, None, ErrorCode.INVALID_REQUEST),
        ("user", 7, None, ErrorCode.INVALID_REQUEST),
        ("user", EXACT, None, ErrorCode.INVALID_REQUEST),
        ("user", ANY, "alice", ErrorCode.INVALID_REQUEST),
    ],
)
def test_nobody_has_quotas(
    stage: "Stage", kind: str, match_type: int, match: str | None, code: ErrorCode
) -> None:
    part = DescribeClientQuotasRequestComponent(entity_type=kind, match_type=match_type, match=match)

    response = stage.ask(
        DescribeClientQuotasRequest(components=(part,), strict=False), DescribeClientQuotasResponse, 1
    )

    assert response.error_code == code
    assert response.entries == (() if code is ErrorCode.NONE else None)


def test_nobody_has_scram_credentials(stage: "Stage") -> None:
    def describe(*names: str) -> list[tuple[str, int]]:
        users = tuple(DescribeUserScramCredentialsRequestUser(name=name) for name in names)
        request = DescribeUserScramCredentialsRequest(users=users)
        response = stage.ask(request, DescribeUserScramCredentialsResponse, 0)
        return [(row.user, row.error_code) for row in response.results]

    assert describe() == []
    assert describe("alice", "bob", "bob") == [
        ("alice", ErrorCode.RESOURCE_NOT_FOUND),
        ("bob", ErrorCode.DUPLICATE_RESOURCE),
    ]


def test_who_may_not_ask_about_the_cluster_learns_nothing(stage: "Stage") -> None:
    stage.authorizer.denied = {
        (operation, CLUSTER)
        for operation in (
            AclOperation.DESCRIBE,
            AclOperation.ALTER,
            AclOperation.DESCRIBE_CONFIGS,
            AclOperation.ALTER_CONFIGS,
        )
    }
    quotas = DescribeClientQuotasRequest(components=(), strict=False)
    scram = DescribeUserScramCredentialsRequest(users=None)

    denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert stage.ask(quotas, DescribeClientQuotasResponse, 1).error_code == denied
    assert stage.ask(scram, DescribeUserScramCredentialsResponse, 0).error_code == denied
