"""Nodes that are wrong about what users may: faults of rules, logins and their acknowledgements.

As in `planted_faults`, which runs them.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from penstock.broker.access import AccessService, Altered
from penstock.core.metadata import MetadataImage, Ok
from penstock.core.metadata.access import AclBinding, AclPermission, PatternType, ResourceType
from penstock.core.metadata.commands import AlterScramCredentials
from penstock.security.acls import AclRules
from penstock.security.authenticator import Authenticator
from penstock.server.kafka.authentication import ConnectionAuthentication
from penstock.server.kafka.handlers import fetch

Patch = pytest.MonkeyPatch


def decisions_outlive_revocations(patch: Patch) -> None:
    """What was decided once is remembered when the rules change."""
    follow = AclRules.on_metadata

    def follow_and_remember(self: AclRules, image: MetadataImage) -> None:
        remembered = dict(self._remembered)
        follow(self, image)
        self._remembered.update(remembered)

    patch.setattr(AclRules, "on_metadata", follow_and_remember)


def denials_of_prefixes_are_ignored(patch: Patch) -> None:
    find = AclRules._rules_for

    def find_others(self: AclRules, kind: ResourceType, name: str) -> Iterator[AclBinding]:
        for rule in find(self, kind, name):
            if rule.pattern is PatternType.LITERAL or rule.permission is AclPermission.ALLOW:
                yield rule

    patch.setattr(AclRules, "_rules_for", find_others)


def passwords_are_acknowledged_before_they_are_durable(patch: Patch) -> None:
    alter = AccessService.alter_credentials

    def alter_later(
        self: AccessService, changes: Sequence[AlterScramCredentials], done: Altered, *more: Any
    ) -> None:
        alter(self, changes, lambda _replies: None, *more)
        self._runtime.timers.soon(lambda: done([Ok() for _ in changes]))

    patch.setattr(AccessService, "alter_credentials", alter_later)


def logins_are_checked_by_the_first_password(patch: Patch) -> None:
    follow = Authenticator.on_metadata

    def follow_the_first(self: Authenticator, image: MetadataImage) -> None:
        if self._image.credentials:
            image = replace(image, credentials=self._image.credentials)
        follow(self, image)

    patch.setattr(Authenticator, "on_metadata", follow_the_first)


def fetches_that_wait_are_not_judged_again(patch: Patch) -> None:
    def respond(
        _call: object, _wanted: object, _asked: object, respond: Callable[[Any], None], found: object
    ) -> None:
        respond(found)

    patch.setattr(fetch, "_respond_as_allowed", respond)


def logins_outlive_their_api_keys(patch: Patch) -> None:
    patch.setattr(ConnectionAuthentication, "_is_current", lambda self, delegation: True)
