"""The authorizer of a secured node: access rules and quotas, by the committed metadata."""

from collections.abc import Callable, Hashable

from penstock.core.metadata import MetadataImage
from penstock.core.metadata.access import AclOperation, ResourceType
from penstock.core.model import Instant
from penstock.security.acls import ALLOWED_BY, AclRules
from penstock.security.authorizer import QuotaType, Resource
from penstock.security.quotas import ClientQuotas
from penstock.security.sessions import Session


class AccessControl:
    """Judges every request by the rules and limits of the newest image that this node has.

    Without rules everyone may do everything.
    """

    def __init__(self, rules: AclRules | None, quotas: ClientQuotas, now: Callable[[], Instant]) -> None:
        self._rules = rules
        self._quotas = quotas
        self._now = now

    def on_metadata(self, image: MetadataImage) -> None:
        if self._rules is not None:
            self._rules.on_metadata(image)
        self._quotas.on_metadata(image)

    def authorize(self, session: Session, operation: AclOperation, resource: Resource) -> bool:
        scope = session.scope
        if scope is not None and scope.isdisjoint(ALLOWED_BY[operation]):
            return False
        rules = self._rules
        return rules is None or rules.allow(session, operation, resource.kind, resource.name)

    def authorize_any(self, session: Session, operation: AclOperation, kind: ResourceType) -> bool:
        scope = session.scope
        if scope is not None and scope.isdisjoint(ALLOWED_BY[operation]):
            return False
        rules = self._rules
        return rules is None or rules.allow_any(session, operation, kind)

    def rights_key(self, session: Session) -> Hashable | None:
        if self._rules is None:
            return None if session.scope is None else session.scope
        return session.scope, self._rules.rights_key(session)

    def charge_connection(self, host: str) -> int:
        return self._quotas.charge_connection(host, self._now())

    def quota_left(self, session: Session, cost: QuotaType) -> int | None:
        quotas = self._quotas
        if quotas.is_empty:
            return None
        return quotas.left(session.principal.name, session.client_id, cost, self._now())

    def charge(self, session: Session, cost: QuotaType, amount: int) -> int:
        quotas = self._quotas
        if quotas.is_empty:
            return 0
        return quotas.charge(session.principal.name, session.client_id, cost, amount, self._now())
