"""Every way to come to a secured node, right and wrong, and what a client must make of it.

A test file per client inherits `EveryLogin` and supplies the `visitor`. What a client has no mechanism for it
lists in `LACKS`.
"""

from collections.abc import Callable, Mapping
from enum import Enum
from functools import partial
from typing import ClassVar, NamedTuple, Protocol

import pytest

from penstock.client.connection import connect
from tests.compatibility.secured_node import PASSWORD_MECHANISMS, Login, SecuredNode

TOKEN = "OAUTHBEARER"
SASL_PROTOCOLS = ("SASL_PLAINTEXT", "SASL_SSL")


class Outcome(Enum):
    """What became of a visit."""

    SERVED = "wrote a record and read it"
    DENIED = "was told that it may not write to the topic"
    LOGIN_REFUSED = "was told that its login failed"
    NOT_CONNECTED = "had no connection that it trusts, or was not trusted"


class Visit(NamedTuple):
    """One way to come, and how it ends."""

    login: Callable[[SecuredNode], Login]
    outcome: Outcome


class Visitor(Protocol):
    """A client, whatever library or command is behind it."""

    def visit(self, login: Login, topic: str) -> Outcome:
        """Write a record to the topic and read it as a member of the group of the same name."""


def _login(protocol: str, mechanism: str, node: SecuredNode) -> Login:
    return node.login(protocol, mechanism)


def _with_wrong_password(mechanism: str, node: SecuredNode) -> Login:
    return node.login("SASL_SSL", mechanism, node.add_user("right"), secret="wrong")


def _trusting_strangers(protocol: str, mechanism: str, node: SecuredNode) -> Login:
    return node.login(protocol, mechanism, authority=node.strangers)


def _visits() -> Mapping[str, Visit]:
    visits = {
        "nobody": Visit(lambda node: node.login("PLAINTEXT"), Outcome.SERVED),
        "nobody, encrypted": Visit(lambda node: node.login("SSL"), Outcome.SERVED),
        "certificate": Visit(
            lambda node: node.login("SSL", user="alice", pair=node.pair("alice"), stem="alice"),
            Outcome.SERVED,
        ),
        "certificate and password": Visit(
            lambda node: node.login("SASL_SSL", "SCRAM-SHA-512", pair=node.pair("alice")), Outcome.SERVED
        ),
        # Whoever logs in is who they log in as.
        "certificate of another user": Visit(
            lambda node: node.login("SASL_SSL", "SCRAM-SHA-512", "bob", pair=node.pair("alice")),
            Outcome.DENIED,
        ),
        "certificate of strangers": Visit(
            lambda node: node.login("SSL", pair=node.pair("alice", "strangers")), Outcome.NOT_CONNECTED
        ),
        "no rights": Visit(lambda node: node.login("SASL_SSL", "SCRAM-SHA-256", "bob"), Outcome.DENIED),
        "no such user": Visit(
            lambda node: node.login("SASL_SSL", "SCRAM-SHA-512", node.new_name(), secret="any"),
            Outcome.LOGIN_REFUSED,
        ),
        "expired token": Visit(
            lambda node: node.login("SASL_SSL", TOKEN, secret=node.issuer.token("alice", -60)),
            Outcome.LOGIN_REFUSED,
        ),
        "token for others": Visit(
            lambda node: node.login("SASL_SSL", TOKEN, secret=node.issuer.token("alice", aud="others")),
            Outcome.LOGIN_REFUSED,
        ),
    }
    for protocol in SASL_PROTOCOLS:
        for mechanism in (*PASSWORD_MECHANISMS, TOKEN):
            visits[f"{mechanism} on {protocol}"] = Visit(partial(_login, protocol, mechanism), Outcome.SERVED)
    for mechanism in PASSWORD_MECHANISMS:
        visits[f"wrong password, {mechanism}"] = Visit(
            partial(_with_wrong_password, mechanism),
            Outcome.LOGIN_REFUSED,
        )
    for protocol, mechanism in (("SSL", ""), ("SASL_SSL", "SCRAM-SHA-512")):
        visits[f"wrong authority on {protocol}"] = Visit(
            partial(_trusting_strangers, protocol, mechanism),
            Outcome.NOT_CONNECTED,
        )
    return visits


VISITS = _visits()
WITH_TOKEN = tuple(name for name in VISITS if TOKEN in name or "token" in name)


class EveryLogin:
    """What is asked of each client."""

    LACKS: ClassVar[tuple[str, ...]] = ()

    @pytest.mark.parametrize("name", VISITS)
    def test_who_comes_right_is_served_and_nobody_else(
        self, visitor: Visitor, secured: SecuredNode, fresh: Callable[[str], str], name: str
    ) -> None:
        if name in self.LACKS:
            pytest.skip("the client has no way to come like this")
        visit = VISITS[name]
        login = visit.login(secured)
        # Failures of the tests before would make this one wait.
        connect(secured.endpoint()).close()

        assert visitor.visit(login, fresh(login.stem)) is visit.outcome
