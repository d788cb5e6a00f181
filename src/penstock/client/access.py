"""Users, access rules, API keys and quotas, as an administrator manages them."""

import hashlib
import secrets
from collections.abc import Sequence
from contextlib import closing, suppress
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
from penstock.core.protocol.messages.create_api_key import CreateApiKeyRequest, CreateApiKeyResponse
from penstock.core.protocol.messages.delete_acls import (
    DeleteAclsRequest,
    DeleteAclsRequestFilter,
    DeleteAclsResponse,
)
from penstock.core.protocol.messages.delete_api_key import DeleteApiKeyRequest, DeleteApiKeyResponse
from penstock.core.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from penstock.core.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from penstock.core.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from penstock.core.protocol.messages.list_api_keys import ListApiKeysRequest
from penstock.core.protocol.messages.metadata import MetadataRequest
from penstock.core.sasl.scram import salted_password
from penstock.runtime.loop import MachineClock

ITERATIONS = 8_192
SALT_BYTES = 24
KEY_ID_BYTES, KEY_BYTES = 8, 32
BROKERS_ASKED_MAX = 20
ANY, MATCH = 1, 2


@dataclass(frozen=True, slots=True)
class UserCredentials:
    """A user, and the mechanisms it has a password for."""

    user: str
    mechanisms: tuple[str, ...]
    iterations: int


@dataclass(frozen=True, slots=True)
class ApiKeyInfo:
    """An API key, without its secret; times are in ms, -1 is never."""

    id: str
    user: str
    created_ms: int
    expires_ms: int
    last_use_ms: int
    scope: tuple[str, ...]
    description: str


@dataclass(frozen=True, slots=True)
class NewApiKey:
    """An API key and its secret, which nobody can show again."""

    id: str
    user: str
    secret: str
    expires_ms: int

    def __repr__(self) -> str:
        return f"NewApiKey(id={self.id!r}, user={self.user!r})"


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

    def create_api_key(
        self,
        user: str,
        *,
        lifetime_ms: int | None = None,
        scope: Sequence[AclOperation] = (),
        description: str = "",
    ) -> NewApiKey:
        """Make an API key for a user. The broker is told a hash of it."""
        id_ = secrets.token_hex(KEY_ID_BYTES)
        secret = f"pk_{id_}_{secrets.token_urlsafe(KEY_BYTES)}"
        expires_ms = -1 if lifetime_ms is None else int(MachineClock().wall()) + lifetime_ms
        answer: CreateApiKeyResponse = self._ask(
            CreateApiKeyRequest(
                id=id_,
                user=user,
                digest=hashlib.sha256(secret.encode()).digest(),
                expires_ms=expires_ms,
                scope=tuple(scope),
                description=description,
            )
        )
        _expect("API key", answer.error_code, answer.error_message)
        return NewApiKey(id_, user, secret, expires_ms)

    def api_keys(self, user: str | None = None) -> list[ApiKeyInfo]:
        """The API keys of a user, or of all. Each broker knows when a key was last used there."""
        found: dict[str, ApiKeyInfo] = {}
        for answer in self._ask_each(ListApiKeysRequest(user=user)):
            _expect("API keys", answer.error_code, answer.error_message)
            for row in answer.keys:
                last_use_ms = row.last_use_ms
                if row.id in found:
                    last_use_ms = max(last_use_ms, found[row.id].last_use_ms)
                found[row.id] = ApiKeyInfo(
                    row.id,
                    row.user,
                    row.created_ms,
                    row.expires_ms,
                    last_use_ms,
                    tuple(AclOperation(each).name.lower() for each in row.scope),
                    row.description,
                )
        return sorted(found.values(), key=lambda key: (key.user, key.created_ms, key.id))

    def delete_api_key(self, id_: str) -> None:
        """Let a key count for nothing."""
        answer: DeleteApiKeyResponse = self._ask(DeleteApiKeyRequest(id=id_))
        _expect("API key", answer.error_code, answer.error_message)

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

    def _ask_each(self, request: Message) -> list[Any]:
        """What the brokers say that can be reached."""
        connection: BrokerConnection
        with closing(connect(self._endpoint)) as connection:
            answers = [connection.ask(request)]
            known = connection.ask(MetadataRequest(topics=(), allow_auto_topic_creation=False)).brokers
        for broker in known[:BROKERS_ASKED_MAX] if len(known) > 1 else ():
            with (
                suppress(OSError, ClientError),
                closing(
                    connect(Endpoint(f"{broker.host}:{broker.port}", self._endpoint.options))
                ) as connection,
            ):
                answers.append(connection.ask(request))
        return answers

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
