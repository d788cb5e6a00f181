"""Passwords that are guessed at, on many connections at once; and what that means for others."""

import secrets
from typing import TYPE_CHECKING

import pytest

from penstock.core.metadata.commands import AlterScramCredentials
from penstock.core.model import MILLISECOND, SECOND
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from penstock.core.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from penstock.core.sasl import credential_of
from penstock.core.sasl.scram import ScramClient
from tests.support.recorded_events import recorded_events
from tests.unit.server.kafka.handlers.test_access import MECHANISMS, SCRAM, as_user, exchange, log_in, secured

if TYPE_CHECKING:
    from tests.unit.server.kafka.handlers.conftest import Client, Stage

GUESSER, ELSEWHERE = "10.0.0.1", "10.0.0.2"


class Guess:
    """A login that has said everything but its last message, which proves the password or is it."""

    def __init__(self, stage: "Stage", mechanism: str, user: str, password: str, host: str = GUESSER) -> None:
        self.client: Client = stage.client(host=host)
        self.client.send(SaslHandshakeRequest(mechanism=mechanism), 1)
        stage.run(MILLISECOND)
        assert self.client.receive(SaslHandshakeResponse, 1).error_code == ErrorCode.NONE
        self._last = f"\0{user}\0{password}".encode()
        if mechanism != "PLAIN":
            scram = ScramClient(SCRAM, user, password, secrets.token_hex(8))
            self.client.send(SaslAuthenticateRequest(auth_bytes=scram.first()), 2)
            stage.run(MILLISECOND)
            self._last = scram.last(self.client.receive(SaslAuthenticateResponse, 2).auth_bytes)

    def send(self) -> None:
        self.client.send(SaslAuthenticateRequest(auth_bytes=self._last), 2)

    @property
    def is_logged_in(self) -> bool:
        return self.client.has_answer and self.code == ErrorCode.NONE

    @property
    def code(self) -> int:
        return self.client.receive(SaslAuthenticateResponse, 2).error_code


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_guesses_on_many_connections_are_checked_one_after_the_other(
    stage_with: type["Stage"], mechanism: str
) -> None:
    stage = secured(stage_with)
    guesses = [Guess(stage, mechanism, "alice", f"guess-{number}") for number in range(40)]
    right = Guess(stage, mechanism, "alice", "alice-pw")

    with recorded_events() as events:
        for guess in (*guesses, right):
            guess.send()
        stage.run(10 * SECOND)

    # After 0, 0.1, 0.3, 0.7, 1.5, 3.1 and 6.3 seconds; of PLAIN one more, by the other thread.
    assert 5 <= len(events.named("kafka.login_failed")) <= 8
    assert not right.client.has_answer


def test_guesses_whose_connections_are_dropped_count(stage_with: type["Stage"]) -> None:
    stage = secured(stage_with)

    for number in range(5):
        guess = Guess(stage, "PLAIN", "alice", f"guess-{number}")
        guess.send()
        guess.client.leave()
        stage.run(SECOND)
    right = Guess(stage, "PLAIN", "alice", "alice-pw")
    right.send()
    stage.run(100 * MILLISECOND)

    assert not right.client.has_answer


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_nobody_waits_for_guesses_that_come_from_elsewhere(stage_with: type["Stage"], mechanism: str) -> None:
    stage = secured(stage_with)
    for number in range(40):
        Guess(stage, mechanism, "alice", f"guess-{number}").send()
    stage.run(10 * SECOND)
    alice = Guess(stage, mechanism, "alice", "alice-pw", ELSEWHERE)

    alice.send()
    stage.run(100 * MILLISECOND)

    assert alice.is_logged_in


def test_who_has_logged_in_from_an_address_does_not_wait_for_others_there(stage_with: type["Stage"]) -> None:
    stage = secured(stage_with)
    before = Guess(stage, "PLAIN", "alice", "alice-pw")
    before.send()
    stage.run(SECOND)
    for number in range(40):
        Guess(stage, "PLAIN", "admin", f"guess-{number}").send()
    stage.run(10 * SECOND)
    again = Guess(stage, "PLAIN", "alice", "alice-pw")

    again.send()
    stage.run(100 * MILLISECOND)

    assert again.is_logged_in


def test_users_of_one_address_take_turns(stage_with: type["Stage"]) -> None:
    stage = secured(stage_with)
    for number in range(40):
        Guess(stage, "PLAIN", "admin", f"guess-{number}").send()
    alice = Guess(stage, "PLAIN", "alice", "alice-pw")

    alice.send()
    stage.run(2 * SECOND)

    assert alice.is_logged_in


def test_who_has_mistyped_logs_in_after_the_delay(stage_with: type["Stage"]) -> None:
    stage = secured(stage_with)

    assert log_in(stage.client(), "alice", "wrong").error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert log_in(stage.client(), "alice").error_code == ErrorCode.NONE


def change_password(stage: "Stage", user: str) -> None:
    stage.submit(AlterScramCredentials(user, (credential_of(user, SCRAM, "another", b"salt"),)))


def test_a_password_that_is_changed_during_a_login_is_not_right_any_more(stage_with: type["Stage"]) -> None:
    stage = secured(stage_with)
    slow = Guess(stage, "SCRAM-SHA-256", "alice", "alice-pw")

    change_password(stage, "alice")
    slow.send()
    stage.run(SECOND)

    assert slow.code == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_a_login_again_with_a_password_that_was_changed_meanwhile_is_refused(
    stage_with: type["Stage"],
) -> None:
    stage = secured(stage_with)
    client = as_user(stage, "alice")
    client.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), SaslHandshakeResponse, 1)
    scram = ScramClient(SCRAM, "alice", "alice-pw", secrets.token_hex(8))
    challenge = exchange(client, scram.first()).auth_bytes

    change_password(stage, "alice")

    assert exchange(client, scram.last(challenge)).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
