"""Passwords that are changed while they are checked."""

import base64

from penstock.core.metadata import MetadataImage
from penstock.core.metadata.access import ScramMechanism
from penstock.core.metadata.commands import AlterScramCredentials, SetDelegationSecret
from penstock.core.sasl import LoggedIn, Refused, Step, credential_of
from penstock.core.sasl.delegation import SignedDelegation
from penstock.security.authenticator import Authenticator
from penstock.security.callers import CallerAuthenticator, CallerCredentials, NotIdentified
from penstock.security.delegations import Delegations
from penstock.security.key_uses import ApiKeyUses
from tests.support.manual_runtime import HandSyncs, HandTimers, hand_runtime
from tests.unit.core.metadata.clusters import cluster, perform

USER, HOST = "alice", "10.0.0.1"
BASIC = CallerCredentials("Basic " + base64.b64encode(b"alice:before").decode())


class Logins:
    """Logins on a node that hears of the password of one user; threads take their time."""

    def __init__(self) -> None:
        self.timers = HandTimers()
        runtime = hand_runtime(self.timers, HandSyncs())
        self._machine = cluster()
        perform(self._machine, SetDelegationSecret(b"s" * 32))
        self.delegations, uses = Delegations(self.timers), ApiKeyUses(self.timers)
        self.authenticator = Authenticator(runtime, ("PLAIN",), None, self.delegations)
        self.callers = CallerAuthenticator(runtime, self.delegations, self.authenticator, None, None, uses)
        self.set_password("before")

    def set_password(self, password: str) -> None:
        credential = credential_of(USER, ScramMechanism.SCRAM_SHA_256, password, b"salt")
        perform(self._machine, AlterScramCredentials(USER, (credential,)))
        image: MetadataImage = self._machine.image
        self.authenticator.on_metadata(image)
        self.delegations.on_metadata(image)

    def plain(self) -> list[Step]:
        """Begin a login by the first password."""
        steps: list[Step] = []
        login = self.authenticator.login("PLAIN", HOST)
        assert login is not None
        login.step(f"\0{USER}\0before".encode(), steps.append)
        return steps

    def basic(self) -> list[SignedDelegation | NotIdentified]:
        outcomes: list[SignedDelegation | NotIdentified] = []
        self.callers.identify(BASIC, HOST, outcomes.append)
        return outcomes


def test_a_password_that_is_changed_while_a_thread_checks_it_logs_nobody_in() -> None:
    logins = Logins()
    plain, basic = logins.plain(), logins.basic()

    logins.set_password("after")
    logins.timers.pass_ms(10_000)

    assert plain == [Refused("alice: the password was changed during the login", USER)]
    assert isinstance(basic[0], NotIdentified)


def test_passwords_that_wait_are_checked_by_what_counts_then() -> None:
    logins = Logins()
    logins.set_password("another")
    steps = [logins.plain() for _ in range(10)]

    logins.set_password("before")
    logins.timers.pass_ms(100_000)

    # Two were with the threads.
    assert [isinstance(step, LoggedIn) for (step,) in steps] == [False] * 2 + [True] * 8


def test_a_statement_about_a_user_ends_with_the_password_that_was_checked() -> None:
    logins = Logins()
    outcomes = logins.basic()
    logins.timers.pass_ms(10)
    (signed,) = outcomes
    assert isinstance(signed, SignedDelegation)
    assert isinstance(logins.delegations.renew(signed), SignedDelegation)

    logins.set_password("after")

    assert isinstance(logins.delegations.renew(signed), str)
