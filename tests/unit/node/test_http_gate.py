"""What a node says to questions that no gateway would ask."""

import pytest

from penstock.node.http_gate import GatewayLogins
from penstock.security.authenticator import Authenticator
from penstock.security.callers import CallerAuthenticator
from penstock.security.delegations import Delegations
from penstock.security.key_uses import ApiKeyUses
from penstock.server.http import HttpRequest, HttpResponse
from tests.support.manual_runtime import HandSyncs, HandTimers, hand_runtime


def answer(path: str, body: bytes) -> int:
    timers = HandTimers()
    runtime = hand_runtime(timers, HandSyncs())
    delegations, uses = Delegations(timers), ApiKeyUses(timers)
    authenticator = Authenticator(runtime, ("PLAIN",), None, delegations)
    callers = CallerAuthenticator(runtime, delegations, authenticator, None, None, uses)
    found: list[HttpResponse] = []
    GatewayLogins("token", callers, delegations, uses)(HttpRequest(path, body), found.append)
    (response,) = found
    return response.status


@pytest.mark.parametrize("path", ["login", "renew"])
@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b'{"token":"\xff","host":"h"}', b'{"x":' + b"[" * 100_000],
    ids=lambda body: body[:20],
)
def test_what_is_no_question_is_refused(path: str, body: bytes) -> None:
    assert answer(path, body) == 400


def test_a_question_of_somebody_else_is_not_answered() -> None:
    assert answer("login", b'{"token":"guess","host":"h"}') == 403
