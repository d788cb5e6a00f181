"""Users, access rules, API keys and quotas, as an administrator manages them."""

import secrets
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from penstock.client.connection import BrokerConnection, connect
from penstock.client.endpoint import ClientError, Endpoint
from penstock.core.metadata.access import (
    AclBinding,
    AclFilter,
    AclOperation,
    AclPermission,
    PatternType,
    QuotaEntity,
    ResourceType,
    ScramMechanism,
)
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
    DescribeClientQuotasResponse,
)
from penstock.core.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from penstock.core.sasl.scram import salted_password

ITERATIONS = 8_192
SALT_BYTES = 24
ANY, MATCH = 1, 2


@dataclass(frozen=True, slots=True)
class UserCredentials:
    """A user, and the mechanisms it has a password for."""

    user: str
    mechanisms: tuple[str, ...]
    iterations: int


class AccessAdmin:
    """Who may do what on a cluster."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    def users(self) -> list[UserCredentials]:
        """Everyone who has a password."""
        answer: DescribeUserScramCredentialsResponse = self._ask(
            DescribeUserScramCredentialsRequest(users=None)
        )
        _expect("users", answer.error_code, answer.error_message)
        return [
            UserCredentials(
                row.user,
                tuple(ScramMechanism(each.mechanism).sasl_name for each in row.credential_infos),
                max((each.iterations for each in row.credential_infos), default=0),
            )
            for row in answer.results
        ]

    def set_password(
        self, user: str, password: str, mechanisms: Sequence[ScramMechanism] = tuple(ScramMechanism)
    ) -> None:
        """Give a user a password, a new one or another. The broker is told a hash of it."""
        rows = []
        for mechanism in mechanisms:
            salt = secrets.token_bytes(SALT_BYTES)
            rows.append(
                AlterUserScramCredentialsRequestUpsertion(
                    name=user,
                    mechanism=mechanism,
                    iterations=ITERATIONS,
                    salt=salt,
                    salted_password=salted_password(mechanism, password, salt, ITERATIONS),
                )
            )
        self._alter_user(user, AlterUserScramCredentialsRequest(deletions=(), upsertions=tuple(rows)))

    def delete_user(self, user: str) -> None:
        """Take a user its passwords."""
        found = next((each for each in self.users() if each.user == user), None)
        if found is None:
            raise ClientError(f"there is no user {user}")
        known = {mechanism.sasl_name: mechanism for mechanism in ScramMechanism}
        rows = tuple(
            AlterUserScramCredentialsRequestDeletion(name=user, mechanism=known[name])
            for name in found.mechanisms
        )
        self._alter_user(user, AlterUserScramCredentialsRequest(deletions=rows, upsertions=()))

    def _alter_user(self, user: str, request: AlterUserScramCredentialsRequest) -> None:
        answer: AlterUserScramCredentialsResponse = self._ask(request)
        for row in answer.results:
            _expect(f"user {user}", row.error_code, row.error_message)

    def acls(self, wanted: AclFilter) -> list[AclBinding]:
        """The access rules that the filter takes."""
        answer: DescribeAclsResponse = self._ask(
            DescribeAclsRequest(
                resource_type_filter=wanted.resource or ANY,
                resource_name_filter=wanted.name,
                pattern_type_filter=_pattern(wanted),
                principal_filter=wanted.principal,
                host_filter=wanted.host,
                operation=wanted.operation or ANY,
                permission_type=wanted.permission or ANY,
            )
        )
        _expect("access rules", answer.error_code, answer.error_message)
        return [
            AclBinding(
                ResourceType(resource.resource_type),
                PatternType(resource.pattern_type),
                resource.resource_name,
                acl.principal,
                acl.host,
                AclOperation(acl.operation),
                AclPermission(acl.permission_type),
            )
            for resource in answer.resources
            for acl in resource.acls
        ]

    def create_acls(self, acls: Sequence[AclBinding]) -> None:
        """Add access rules."""
        answer: CreateAclsResponse = self._ask(
            CreateAclsRequest(
                creations=tuple(
                    CreateAclsRequestAcl(
                        resource_type=acl.resource,
                        resource_name=acl.name,
                        resource_pattern_type=acl.pattern,
                        principal=acl.principal,
                        host=acl.host,
                        operation=acl.operation,
                        permission_type=acl.permission,
                    )
                    for acl in acls
                )
            )
        )
        for row in answer.results:
            _expect("access rule", row.error_code, row.error_message)

    def delete_acls(self, wanted: AclFilter) -> list[AclBinding]:
        """Remove the rules that the filter takes; returns them."""
        answer: DeleteAclsResponse = self._ask(
            DeleteAclsRequest(
                filters=(
                    DeleteAclsRequestFilter(
                        resource_type_filter=wanted.resource or ANY,
                        resource_name_filter=wanted.name,
                        pattern_type_filter=_pattern(wanted),
                        principal_filter=wanted.principal,
                        host_filter=wanted.host,
                        operation=wanted.operation or ANY,
                        permission_type=wanted.permission or ANY,
                    ),
                )
            )
        )
        (row,) = answer.filter_results
        _expect("access rules", row.error_code, row.error_message)
        return [
            AclBinding(
                ResourceType(acl.resource_type),
                PatternType(acl.pattern_type),
                acl.resource_name,
                acl.principal,
                acl.host,
                AclOperation(acl.operation),
                AclPermission(acl.permission_type),
            )
            for acl in row.matching_acls
        ]

    def quotas(self) -> list[tuple[QuotaEntity, dict[str, float]]]:
        """The limits of every entity that has some."""
        answer: DescribeClientQuotasResponse = self._ask(
            DescribeClientQuotasRequest(components=(), strict=False)
        )
        _expect("quotas", answer.error_code, answer.error_message)
        return [
            (
                tuple((part.entity_type, part.entity_name) for part in entry.entity),
                {value.key: value.value for value in entry.values},
            )
            for entry in answer.entries or ()
        ]

    def alter_quotas(self, entity: QuotaEntity, limits: dict[str, float | None]) -> None:
        """Set limits of an entity, or remove those that are None."""
        entry = AlterClientQuotasRequestEntry(
            entity=tuple(
                AlterClientQuotasRequestEntityPart(entity_type=kind, entity_name=name)
                for kind, name in entity
            ),
            ops=tuple(
                AlterClientQuotasRequestOperation(key=key, value=value or 0.0, remove=value is None)
                for key, value in limits.items()
            ),
        )
        answer: AlterClientQuotasResponse = self._ask(
            AlterClientQuotasRequest(entries=(entry,), validate_only=False)
        )
        for row in answer.entries:
            _expect("quota", row.error_code, row.error_message)

    def _ask(self, request: Message) -> Any:
        connection: BrokerConnection
        with closing(connect(self._endpoint)) as connection:
            return connection.ask(request)


def _pattern(wanted: AclFilter) -> int:
    return MATCH if wanted.matches_name else wanted.pattern or ANY


def _expect(what: str, code: int, message: str | None) -> None:
    if code != ErrorCode.NONE:
        name = ErrorCode(code).name.lower().replace("_", " ")
        raise ClientError(f"{what}: {message or name}")
