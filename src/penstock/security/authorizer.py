"""Authorization and quotas: what is checked for every request."""

import enum
from typing import NamedTuple, Protocol

from penstock.security.sessions import Session


class AclOperation(enum.Enum):
    """What a request wants to do, as access control lists name it."""

    READ = "read"
    WRITE = "write"
    CREATE = "create"
    DELETE = "delete"
    ALTER = "alter"
    DESCRIBE = "describe"
    CLUSTER_ACTION = "cluster action"
    DESCRIBE_CONFIGS = "describe configs"
    ALTER_CONFIGS = "alter configs"
    IDEMPOTENT_WRITE = "idempotent write"


class ResourceType(enum.Enum):
    """The kind of thing that a request wants to do it to."""

    TOPIC = "topic"
    GROUP = "group"
    CLUSTER = "cluster"
    TRANSACTIONAL_ID = "transactional id"


class Resource(NamedTuple):
    """One thing that permissions are given for."""

    kind: ResourceType
    name: str


class QuotaType(enum.Enum):
    """What quotas count."""

    BYTES_IN = "bytes in"
    BYTES_OUT = "bytes out"
    REQUEST_NS = "request time"
    MUTATIONS = "controller mutations"


class Authorizer(Protocol):
    """Decides who may do what, and how fast."""

    def authorize(self, session: Session, operation: AclOperation, resource: Resource) -> bool: ...

    def charge(self, session: Session, cost: QuotaType, amount: int) -> int:
        """Count what a request cost; returns for how many milliseconds its client is to be throttled."""
