"""Authorization and quotas: what is checked for every request."""

import enum
from collections.abc import Hashable
from typing import NamedTuple, Protocol

from penstock.core.metadata.access import AclOperation, ResourceType
from penstock.security.sessions import Session


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

    def authorize_any(self, session: Session, operation: AclOperation, kind: ResourceType) -> bool:
        """Whether the session may do this to a resource of the kind, whichever it is."""

    def rights_key(self, session: Session) -> Hashable | None:
        """Sessions with equal keys may do the same, until one of them gets another key.

        None if nobody is asked what they may do.
        """

    def charge_connection(self, host: str) -> int:
        """Count a new connection of an address; returns for how many milliseconds it is not to be read."""

    def quota_left(self, session: Session, cost: QuotaType) -> int | None:
        """How much a client may have at once: nothing while it owes; None if it has no limit."""

    def charge(self, session: Session, cost: QuotaType, amount: int) -> int:
        """Count what a request cost; returns for how many milliseconds its client is to be throttled."""
