"""Access rules: whether a principal may, from its host, do something to a resource.

As Kafka's StandardAuthorizer decides it: a super user may do everything; a rule that denies wins; without
a rule that allows, nothing is allowed. Who may read, write, delete or alter something may describe it as
well, and who may alter its configuration may see it.

    rules for a resource   its literal name   +   the literal "*"   +   every prefix of its name

Rules are found by dictionaries, whatever their number. Decisions are remembered until the rules change.
"""

from collections.abc import Iterator
from sys import getsizeof

from penstock.core.ip_address import canonical_address
from penstock.core.metadata import MetadataImage
from penstock.core.metadata.access import (
    ANY_HOST,
    ANY_NAME,
    ANYBODY,
    AclBinding,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from penstock.core.metadata.image import PersistentMap
from penstock.security.sessions import Session

REMEMBERED_MAX = 50_000
REMEMBERED_ANY_MAX = 10_000
# What a name takes in memory. Clients may ask about names that are longer than any that exists.
REMEMBERED_BYTES_MAX = 400
# What is allowed to whoever may do one of these.
_IMPLIED_BY: dict[AclOperation, frozenset[AclOperation]] = {
    AclOperation.DESCRIBE: frozenset(
        {AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER}
    ),
    AclOperation.DESCRIBE_CONFIGS: frozenset({AclOperation.ALTER_CONFIGS}),
}
_NOTHING: frozenset[AclOperation] = frozenset()
# What one must be allowed at least one of, to do this.
ALLOWED_BY: dict[AclOperation, frozenset[AclOperation]] = {
    operation: _IMPLIED_BY.get(operation, _NOTHING) | {operation, AclOperation.ALL}
    for operation in AclOperation
}


class AclRules:
    """The rules of an image, in the order in which they are asked for."""

    def __init__(
        self, super_users: frozenset[str] = frozenset(), *, open_without_rules: bool = False
    ) -> None:
        """Super users are written as `User:alice`.

        `open_without_rules`: everyone may do everything to what no rule names.
        """
        self._super_users = super_users
        self._open_without_rules = open_without_rules
        self._stored: PersistentMap[AclBinding, bool] = PersistentMap()
        self._literal: dict[tuple[ResourceType, str], dict[AclBinding, None]] = {}
        self._prefixed: dict[tuple[ResourceType, str], dict[AclBinding, None]] = {}
        # How many prefixes there are of each length.
        self._lengths: dict[ResourceType, dict[int, int]] = {}
        # How many rules are for one host, and how often rules have changed.
        self._with_host = 0
        self._version = 0
        self._by_principal: dict[tuple[ResourceType, str], dict[AclBinding, None]] = {}
        self._remembered: dict[tuple[str, str, AclOperation, ResourceType, str], bool] = {}
        # The same of all resources of a kind.
        self._remembered_any: dict[tuple[str, str, AclOperation, ResourceType], bool] = {}

    def on_metadata(self, image: MetadataImage) -> None:
        """Take over the rules of an image."""
        stored, before = image.acls, self._stored
        if stored is before:
            return
        for acl in before.keys_missing_in(stored):
            self._remove(acl)
        for acl in stored.keys_missing_in(before):
            self._add(acl)
        self._stored = stored
        self._version += 1
        self._remembered.clear()
        self._remembered_any.clear()

    def _add(self, acl: AclBinding) -> None:
        place = acl.resource, acl.name
        self._with_host += acl.host != ANY_HOST
        self._by_principal.setdefault((acl.resource, acl.principal), {})[acl] = None
        if acl.pattern is PatternType.LITERAL:
            self._literal.setdefault(place, {})[acl] = None
            return
        if place not in self._prefixed:
            self._prefixed[place] = {}
            lengths = self._lengths.setdefault(acl.resource, {})
            lengths[len(acl.name)] = lengths.get(len(acl.name), 0) + 1
        self._prefixed[place][acl] = None

    def _remove(self, acl: AclBinding) -> None:
        place, whose = (acl.resource, acl.name), (acl.resource, acl.principal)
        self._with_host -= acl.host != ANY_HOST
        del self._by_principal[whose][acl]
        if not self._by_principal[whose]:
            del self._by_principal[whose]
        table = self._literal if acl.pattern is PatternType.LITERAL else self._prefixed
        del table[place][acl]
        if table[place]:
            return
        del table[place]
        if table is self._prefixed:
            lengths = self._lengths[acl.resource]
            lengths[len(acl.name)] -= 1
            if not lengths[len(acl.name)]:
                del lengths[len(acl.name)]

    def allow(self, session: Session, operation: AclOperation, kind: ResourceType, name: str) -> bool:
        """Whether the session may do this to the resource."""
        asked = session.principal_name, session.host, operation, kind, name
        known = self._remembered.get(asked)
        if known is None:
            known = self._decide(asked)
            if getsizeof(name) > REMEMBERED_BYTES_MAX:
                return known
            if len(self._remembered) >= REMEMBERED_MAX:
                self._remembered.clear()
            self._remembered[asked] = known
        return known

    def rights_key(self, session: Session) -> tuple[int, str, str]:
        """What decisions about a session depend on: with the same key they are the same."""
        return self._version, session.principal_name, session.host if self._with_host else ANY_HOST

    def allow_any(self, session: Session, operation: AclOperation, kind: ResourceType) -> bool:
        """Whether there may be a resource of the kind that the session may do this to (KIP-679)."""
        asked = session.principal_name, session.host, operation, kind
        known = self._remembered_any.get(asked)
        if known is None:
            known = self._decide_any(*asked)
            if len(self._remembered_any) >= REMEMBERED_ANY_MAX:
                self._remembered_any.clear()
            self._remembered_any[asked] = known
        return known

    def _decide_any(self, principal: str, host: str, operation: AclOperation, kind: ResourceType) -> bool:
        if principal in self._super_users:
            return True
        if self._open_without_rules and (kind, ANY_NAME) not in self._literal:
            return True
        allowed: list[AclBinding] = []
        denied: dict[PatternType, set[str]] = {pattern: set() for pattern in PatternType}
        for acl in self._rules_about(kind, principal):
            if not _applies(acl, principal, host, operation):
                continue
            if acl.permission is AclPermission.DENY:
                denied[acl.pattern].add(acl.name)
            else:
                allowed.append(acl)
        if ANY_NAME in denied[PatternType.LITERAL]:
            return False
        lengths = sorted({len(name) for name in denied[PatternType.PREFIXED]})
        return any(not _is_dominated(acl, denied, lengths) for acl in allowed)

    def _rules_about(self, kind: ResourceType, principal: str) -> Iterator[AclBinding]:
        yield from self._by_principal.get((kind, principal), ())
        yield from self._by_principal.get((kind, ANYBODY), ())

    def _decide(self, asked: tuple[str, str, AclOperation, ResourceType, str]) -> bool:
        principal, host, operation, kind, name = asked
        if principal in self._super_users:
            return True
        allowed, is_named = False, False
        for acl in self._rules_for(kind, name):
            is_named = True
            if not _applies(acl, principal, host, operation):
                continue
            if acl.permission is AclPermission.DENY:
                return False
            allowed = True
        return allowed or (self._open_without_rules and not is_named)

    def _rules_for(self, kind: ResourceType, name: str) -> Iterator[AclBinding]:
        yield from self._literal.get((kind, name), ())
        if name != ANY_NAME:
            yield from self._literal.get((kind, ANY_NAME), ())
        for length in self._lengths.get(kind, ()):
            if length <= len(name):
                yield from self._prefixed.get((kind, name[:length]), ())


def _applies(acl: AclBinding, principal: str, host: str, operation: AclOperation) -> bool:
    """Whether the rule is about this. What is denied implies nothing."""
    if acl.principal not in (principal, ANYBODY):
        return False
    # Older rules have addresses as somebody wrote them.
    if acl.host not in (host, ANY_HOST) and canonical_address(acl.host) != host:
        return False
    if acl.operation in (operation, AclOperation.ALL):
        return True
    implied = _IMPLIED_BY.get(operation, _NOTHING)
    return acl.permission is AclPermission.ALLOW and acl.operation in implied


def _is_dominated(acl: AclBinding, denied: dict[PatternType, set[str]], lengths: list[int]) -> bool:
    """Whether rules deny all that a rule allows. `lengths` are those of prefixes that are denied."""
    name = acl.name
    if acl.pattern is PatternType.LITERAL:
        if name == ANY_NAME:
            return False
        if name in denied[PatternType.LITERAL]:
            return True
    prefixes = denied[PatternType.PREFIXED]
    return any(name[:length] in prefixes for length in lengths if length <= len(name))
