"""What goes into the audit log that did not come through a Kafka listener.

    callers   logins over REST, WebSocket and gRPC, which the gateway asks the node about, and at the node's
              own pages; what these refuse
    the node  what it does about users and keys by itself: the first administrator, the user of the
              configuration, a master key that has become too old

A caller logs in once, by the protocol that it came with first, and is known from then on: what it does is in
the entries of the Kafka port, where the gateway acts as the caller.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from penstock.core.metadata.access import AclOperation
from penstock.security.audit.entry import AuditDecision, AuditEntry, entry_of
from penstock.security.audit.log import AuditLog
from penstock.security.authorizer import Resource
from penstock.security.sessions import ANONYMOUS, CallerProtocol, Principal, Session, name_key

GRPC: Final = "grpc"
HTTP: Final = "http"
LOGIN: Final = "login"


class LoginMeans(NamedTuple):
    """By what a caller says who it is; the id of its API key, if that is one of the cluster's."""

    mechanism: str | None
    api_key: str = ""

    @property
    def details(self) -> tuple[str, ...]:
        return (f"API key {self.api_key}",) if self.api_key else ()


class NodeAudit:
    """Makes entries of what callers of a node's servers try, and of what the node does by itself."""

    def __init__(self, log: AuditLog) -> None:
        self._log = log

    def logged_in(self, user: str, host: str, protocol: CallerProtocol, means: LoginMeans) -> None:
        """A caller is this user from now on."""
        session = _session(Principal("User", user), host, protocol)
        entry = self._login(session, user, protocol, means, None)
        self._log.repeat((True, user, host, protocol, means), entry)

    def login_failed(
        self, user: str, host: str, protocol: CallerProtocol, means: LoginMeans, reason: str
    ) -> None:
        """A caller wanted to be somebody, as far as it said who."""
        entry = self._login(_session(ANONYMOUS, host, protocol), user, protocol, means, reason)
        self._log.repeat((False, name_key(user), host, protocol, means, entry.error), entry)

    def _login(
        self, session: Session, user: str, protocol: CallerProtocol, means: LoginMeans, reason: str | None
    ) -> AuditEntry:
        return entry_of(
            session,
            self._log.now_ms,
            protocol,
            LOGIN,
            ("user", user) if user else None,
            AuditDecision.ALLOWED if reason is None else AuditDecision.REFUSED,
            error=reason,
            mechanism=means.mechanism,
            details=means.details,
        )

    def page_refused(self, session: Session, operation: AclOperation, resource: Resource) -> None:
        """Somebody may not do this at the node's pages."""
        entry = entry_of(
            session,
            self._log.now_ms,
            "page",
            operation.name.lower(),
            (resource.kind.name.lower(), resource.name),
            AuditDecision.REFUSED,
            error="not authorized",
        )
        kind = (
            False,
            session.principal_name,
            session.host,
            operation,
            resource.kind,
            name_key(resource.name),
        )
        self._log.repeat(kind, entry)

    def did(
        self,
        what: str,
        operation: AclOperation,
        resource: tuple[str, str],
        *,
        details: Sequence[str] = (),
        error: str | None = None,
    ) -> None:
        """The node did something by itself, or tried to: nobody has asked for it over the network."""
        principal = Principal("Node", str(self._log.node_id))
        entry = entry_of(
            Session(principal, "", "", "", str(principal)),
            self._log.now_ms,
            what,
            operation.name.lower(),
            resource,
            AuditDecision.ALLOWED,
            error=error,
            details=tuple(details),
        )
        if error is None:
            self._log.record(entry)
        else:
            # It tries again and again.
            self._log.repeat((what, operation, resource, entry.error), entry)


def _session(principal: Principal, host: str, protocol: CallerProtocol) -> Session:
    return Session(principal, GRPC if protocol == "gRPC" else HTTP, "", host, str(principal))
