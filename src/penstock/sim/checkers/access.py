"""Nobody does what it may not, and nobody is refused what it may.

Clients that log in as users note what a node did with each of their requests, and which metadata the node
had meanwhile: those it had when the request was sent, and every change until its response was written.

    request ──────▶ response with records
      views  A … A  B                       B must allow it: what came in between may have forbidden it
      refused       if A and B allow it, that is wrong, too

What the metadata allow is found once more here, rule by rule and without any index or memory. That a change
which was acknowledged is in the metadata from then on is checked by `metadata`.

    forbidden         served, though none of the metadata allow it
    seen              records in a response, though the metadata forbid them by then
    refused           refused, though all of them allow it
    fenced            records of a node that was fenced, by rights that were taken back
    false login       logged in with a password that none of the metadata have
    refused login     refused with the password that all of them have
    revoked key       records for an API key that is not there any more
    throttled         told to wait without a quota
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from penstock.core.metadata.access import (
    ANY_NAME,
    ANYBODY,
    USER,
    AclBinding,
    AclOperation,
    AclPermission,
    ApiKey,
    PatternType,
    ResourceType,
    ScramCredential,
    ScramMechanism,
    entity_key,
)
from penstock.core.metadata.image import MetadataImage
from penstock.core.sasl import is_password


class AccessView(NamedTuple):
    """What the metadata of a node said of users at one time."""

    rules: tuple[AclBinding, ...]
    credential: Callable[[tuple[str, ScramMechanism]], ScramCredential | None]
    api_key: Callable[[str], ApiKey | None]
    is_limited: Callable[[str], bool]

    @staticmethod
    def of(image: MetadataImage) -> "AccessView":
        return AccessView(
            tuple(image.acls.keys()),
            image.credentials.get,
            image.api_keys.get,
            lambda user: image.quotas.get(entity_key(((USER, user),))) is not None,
        )

    def allows(self, user: str, operation: AclOperation, topic: str) -> bool:
        """Whether the user may do this to the topic: some rule allows it, and none denies it."""
        found = [rule.permission for rule in self.rules if _is_about(rule, user, operation, topic)]
        return AclPermission.ALLOW in found and AclPermission.DENY not in found

    def knows(self, user: str, mechanism: ScramMechanism, password: str) -> bool:
        credential = self.credential((user, mechanism))
        return credential is not None and _is_password(credential, password)


def _is_about(rule: AclBinding, user: str, operation: AclOperation, topic: str) -> bool:
    if rule.resource is not ResourceType.TOPIC or rule.principal not in (f"User:{user}", ANYBODY):
        return False
    if rule.operation not in (operation, AclOperation.ALL):
        return False
    if rule.pattern is PatternType.PREFIXED:
        return topic.startswith(rule.name)
    return rule.name in (topic, ANY_NAME)


@lru_cache(maxsize=1_000)
def _is_password(credential: ScramCredential, password: str) -> bool:
    return is_password(credential, password)


class Asked(NamedTuple):
    """A request of a user: who asked which node for what, with an API key or a password."""

    user: str
    node: int
    operation: AclOperation
    topic: str
    api_key: str = ""


@dataclass(slots=True)
class AccessChecker:
    """What nodes did with the requests and logins of users."""

    anomalies: list[str] = field(default_factory=list)
    served: int = 0
    denied: int = 0
    delivered: int = 0
    # Refused when the response was due, by rules that allowed it when it was asked for.
    overtaken: int = 0
    logins: int = 0
    refused_logins: int = 0
    throttled: int = 0
    # Changes of rules, passwords, keys and quotas that were acknowledged.
    changes: int = 0

    def allowed(self, asked: Asked, views: Sequence[AccessView]) -> None:
        """A node did it, or began to."""
        self.served += 1
        if not any(view.allows(asked.user, asked.operation, asked.topic) for view in views):
            self._note(f"forbidden: {_said(asked)}, which no rule allows")

    def refused(self, asked: Asked, views: Sequence[AccessView]) -> None:
        """A node refused it."""
        self.denied += 1
        allow = [view.allows(asked.user, asked.operation, asked.topic) for view in views]
        if all(allow):
            self._note(f"refused: {_said(asked)} was refused, though the rules allow it")
        self.overtaken += allow[0]

    def shown(self, asked: Asked, views: Sequence[AccessView], newest: AccessView, *, is_live: bool) -> None:
        """A node writes records into a response; `newest`: what the cluster has committed by now.

        A node that is live may not have heard of that; one that was fenced must not answer.
        """
        self.delivered += 1
        user, _, operation, topic, api_key = asked
        if not views[-1].allows(user, operation, topic):
            self._note(f"seen: {_said(asked)} was given records, though that is forbidden by now")
        if api_key and views[-1].api_key(api_key) is None:
            self._note(f"revoked key: {_said(asked)} was given records for a key that is gone")
        if not is_live and not newest.allows(user, operation, topic):
            self._note(f"fenced: {_said(asked)} was given records by a node that was fenced")

    def logged_in(
        self, user: str, mechanism: ScramMechanism, password: str, views: Sequence[AccessView]
    ) -> None:
        self.logins += 1
        if not any(view.knows(user, mechanism, password) for view in views):
            self._note(f"false login: {user} with a password that is not, or no longer, the right one")

    def login_refused(
        self, user: str, mechanism: ScramMechanism, password: str, views: Sequence[AccessView]
    ) -> None:
        self.refused_logins += 1
        if all(view.knows(user, mechanism, password) for view in views):
            self._note(f"refused login: {user} with the right password")

    def told_to_wait(self, user: str, views: Sequence[AccessView]) -> None:
        self.throttled += 1
        if not any(view.is_limited(user) for view in views):
            self._note(f"throttled: {user}, who has no quota")

    def _note(self, anomaly: str) -> None:
        if anomaly not in self.anomalies:
            self.anomalies.append(anomaly)


def _said(asked: Asked) -> str:
    return f"{asked.operation.name.lower()} {asked.topic} by {asked.user} on node {asked.node}"
