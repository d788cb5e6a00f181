"""Who may do what, and how fast: access rules, credentials, API keys and client quotas.

These are values that facts carry. Whoever logs in or asks for something is judged by them in
`penstock.security`; changing them is decided in `decide_access`.

    AclBinding       a principal, from a host, is allowed or denied an operation on resources by pattern
    ScramCredential  what a broker keeps of a password (RFC 5802): enough to check it, not to log in
    ApiKey           a secret for HTTP, gRPC and WebSocket, kept as its SHA-256
    QuotaEntity      whom a limit is for: a user, a client id, both, or an address

Numbers are Kafka's, so that its protocol and tools need no translation.

Left out: delegation tokens; an API key that expires does what they are for.
"""

import enum
from typing import ClassVar, Literal, TypeAlias

import msgspec

from penstock.core.ip_address import canonical_address
from penstock.core.metadata.levels import ACCESS_LEVEL, StoredStruct
from penstock.core.model import Timestamp

ANYBODY = "User:*"
ANY_HOST = "*"
ANY_NAME = "*"
CLUSTER_NAME = "kafka-cluster"
NO_EXPIRY = Timestamp(-1)


class ResourceType(enum.IntEnum):
    """The kind of thing that permissions are given for."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(enum.IntEnum):
    """How a rule names resources: one, or all whose names begin so."""

    LITERAL = 3
    PREFIXED = 4


class AclOperation(enum.IntEnum):
    """What a request wants to do, as access rules name it."""

    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14


class AclPermission(enum.IntEnum):
    """What a rule says. One that denies wins over any that allow."""

    DENY = 2
    ALLOW = 3


class AclBinding(StoredStruct, frozen=True, order=True):
    """One access rule. Two with the same fields are one."""

    SINCE: ClassVar[int] = ACCESS_LEVEL

    resource: ResourceType
    pattern: PatternType
    # ANY_NAME as a literal stands for every resource of the kind.
    name: str
    # As `User:alice`; ANYBODY for everyone.
    principal: str
    # An IP address, or ANY_HOST. Older rules have it as somebody wrote it, newer ones as it is compared.
    host: str
    operation: AclOperation
    permission: AclPermission


class AclFilter(msgspec.Struct, frozen=True):
    """Rules that have these fields; None is any value.

    `matches_name` finds what applies to the named resource: its literal and prefixed rules, and those for
    every resource of the kind (Kafka's pattern type MATCH).
    """

    resource: ResourceType | None = None
    pattern: PatternType | None = None
    name: str | None = None
    principal: str | None = None
    host: str | None = None
    operation: AclOperation | None = None
    permission: AclPermission | None = None
    matches_name: bool = False

    def takes(self, rule: AclBinding) -> bool:
        """Whether the rule is one of them."""
        return (
            self.resource in (None, rule.resource)
            and self.principal in (None, rule.principal)
            and self._takes_host(rule)
            and self.operation in (None, rule.operation)
            and self.permission in (None, rule.permission)
            and self._takes_name(rule)
        )

    def _takes_host(self, rule: AclBinding) -> bool:
        if self.host in (None, rule.host):
            return True
        assert self.host is not None
        return canonical_address(self.host) == canonical_address(rule.host)

    def _takes_name(self, rule: AclBinding) -> bool:
        if self.name is None:
            return self.pattern in (None, rule.pattern)
        if self.matches_name:
            if rule.pattern is PatternType.PREFIXED:
                return self.name.startswith(rule.name)
            return rule.name in (self.name, ANY_NAME)
        return self.name == rule.name and self.pattern in (None, rule.pattern)


class ScramMechanism(enum.IntEnum):
    """The hash that a SCRAM exchange is made with."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def hash_name(self) -> Literal["sha256", "sha512"]:
        return "sha256" if self is ScramMechanism.SCRAM_SHA_256 else "sha512"

    @property
    def sasl_name(self) -> str:
        return "SCRAM-SHA-256" if self is ScramMechanism.SCRAM_SHA_256 else "SCRAM-SHA-512"

    @property
    def key_bytes(self) -> int:
        return 32 if self is ScramMechanism.SCRAM_SHA_256 else 64


class ScramCredential(StoredStruct, frozen=True):
    """What a broker keeps of a user's password for one mechanism."""

    SINCE: ClassVar[int] = ACCESS_LEVEL

    user: str
    mechanism: ScramMechanism
    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes

    def __repr__(self) -> str:
        return f"ScramCredential(user={self.user!r}, mechanism={self.mechanism.sasl_name})"


class ApiKey(StoredStruct, frozen=True):
    """A secret that stands for a user, for HTTP, gRPC and WebSocket.

    `scope` narrows what the user may do down to these operations; none is no restriction.
    """

    SINCE: ClassVar[int] = ACCESS_LEVEL

    id: str
    user: str
    # SHA-256 of the secret, which is random: a slow hash would protect nothing more.
    digest: bytes
    created: Timestamp
    expires: Timestamp = NO_EXPIRY
    scope: tuple[AclOperation, ...] = ()
    description: str = ""

    def __repr__(self) -> str:
        return f"ApiKey(id={self.id!r}, user={self.user!r})"


# Kafka's names for the parts of an entity.
USER, CLIENT_ID, IP = "user", "client-id", "ip"
# Parts in the order of their types; a name of None is the default of the type.
QuotaEntity: TypeAlias = tuple[tuple[str, str | None], ...]

PRODUCER_BYTE_RATE = "producer_byte_rate"
CONSUMER_BYTE_RATE = "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
CONNECTION_CREATION_RATE = "connection_creation_rate"
QUOTA_KEYS = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE)
IP_QUOTA_KEYS = (CONNECTION_CREATION_RATE,)


def entity_key(entity: QuotaEntity) -> tuple[tuple[str, bool, str], ...]:
    """The entity in a form that sorts: defaults have no name."""
    return tuple((kind, name is not None, name or "") for kind, name in entity)


def entity_of(key: tuple[tuple[str, bool, str], ...]) -> QuotaEntity:
    """The entity that has this key."""
    return tuple((kind, name if is_named else None) for kind, is_named, name in key)
