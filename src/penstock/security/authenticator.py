"""Logins: which SASL mechanisms a listener offers, and who a client turns out to be.

    PLAIN, SCRAM-SHA-256, SCRAM-SHA-512   by the credentials of the metadata
    OAUTHBEARER                           by a token that an issuer has signed (`oauth`)

PLAIN is checked against what is kept for SCRAM: no password is stored twice, or in clear. That takes
milliseconds, so a thread does it; a password that was right is known again by a keyed hash, whose key ends
with the process. A user that does not exist is checked like one that does.
"""

import base64
import hmac
from collections import OrderedDict, deque
from collections.abc import Callable
from functools import partial
from typing import Protocol, TypeAlias

from penstock.core.metadata import MetadataImage
from penstock.core.metadata.access import ScramCredential, ScramMechanism
from penstock.core.model import Instant, ProtocolError
from penstock.core.sasl import (
    DELEGATE,
    LoggedIn,
    Refused,
    ScramExchange,
    Step,
    is_password,
    read_oauth_message,
    read_plain_message,
)
from penstock.runtime import ExecutorKind, Runtime
from penstock.security.decoys import DecoyCredentials
from penstock.security.delegations import NONCE_BYTES, DelegateLogin, Delegations
from penstock.security.login_limits import Finished, LoginLimits, LoginTurns
from penstock.security.options import OAUTHBEARER

PLAIN = "PLAIN"
SCRAM = {mechanism.sasl_name: mechanism for mechanism in ScramMechanism}
MECHANISMS = ("SCRAM-SHA-512", "SCRAM-SHA-256", PLAIN, OAUTHBEARER)
KNOWN_PASSWORDS_MAX = 10_000
# Checking a password takes a thread for milliseconds, and logs need the threads too.
CHECKS_MAX = 2
WAITING_CHECKS_MAX = 500
OnStep: TypeAlias = Callable[[Step], None]
# The credential that a password is right for, or why there is none.
OnPassword: TypeAlias = Callable[[ScramCredential | Refused], None]
TOO_MANY = "too many passwords of its network wait to be checked"


class Token(Protocol):
    """What a token says that counts."""

    @property
    def user(self) -> str: ...

    @property
    def expires(self) -> Instant:
        """When it ends, on the clock of deadlines."""


class TokenVerifier(Protocol):
    """Checks bearer tokens."""

    def verify(self, token: str, done: Callable[["Token | str"], None]) -> None:
        """Call `done` with what the token says, or with why it does not count."""


class SaslLogin(Protocol):
    """One login of a client, message by message."""

    def step(self, content: bytes, on_step: OnStep) -> None:
        """Take a message; `on_step` is called with what it leads to, now or later."""


class Authenticator:
    """Begins logins, by the credentials of the newest image that this node has."""

    def __init__(
        self,
        runtime: Runtime,
        mechanisms: tuple[str, ...],
        tokens: TokenVerifier | None = None,
        delegations: Delegations | None = None,
    ) -> None:
        """`delegations` lets gateways of the cluster log in for their clients, beside the `mechanisms`."""
        assert tokens is not None or OAUTHBEARER not in mechanisms
        self.mechanisms = mechanisms
        self.delegations = delegations
        self._limits = LoginLimits()
        self._turns = LoginTurns(runtime.clock, runtime.timers)
        self._runtime = runtime
        self._tokens = tokens
        self._image = MetadataImage()
        # Passwords that a thread checks, and those that wait for it.
        self._checks = 0
        self._waiting: deque[Callable[[], None]] = deque()
        self._secret = runtime.entropy.bytes(32)
        self._decoys = DecoyCredentials(self._secret)
        # Hashes of passwords that were right, by user and credential.
        self._known: OrderedDict[tuple[str, bytes], bytes] = OrderedDict()

    def on_metadata(self, image: MetadataImage) -> None:
        self._image = image
        self._decoys.on_metadata(image)

    def login(self, mechanism: str, host: str) -> SaslLogin | None:
        """Begin a login of somebody at this address; None if the mechanism is not offered."""
        if mechanism == DELEGATE and self.delegations is not None:
            return _DelegateLogin(self.delegations.login(self._runtime.entropy.bytes(NONCE_BYTES)))
        if mechanism not in self.mechanisms:
            return None
        if mechanism == PLAIN:
            return _PlainLogin(self, host)
        if mechanism == OAUTHBEARER:
            assert self._tokens is not None
            return _TokenLogin(self._tokens)
        scram = SCRAM[mechanism]
        nonce = base64.b64encode(self._runtime.entropy.bytes(NONCE_BYTES)).decode()
        exchange = ScramExchange(scram, nonce, partial(self._credential, mechanism=scram))
        return _ScramLogin(exchange, self._turns, host)

    def _credential(self, user: str, mechanism: ScramMechanism) -> ScramCredential:
        found = self._image.credentials.get((user, mechanism))
        return self._decoys.of(user, mechanism) if found is None else found

    def is_user(self, user: str) -> bool:
        """Whether the user has a password of any kind."""
        return any((user, mechanism) in self._image.credentials for mechanism in ScramMechanism)

    def login_failed(self, host: str, user: str) -> int:
        """Count a failed login; returns after how many milliseconds it is to be answered."""
        delay_ms = self._limits.failed(host, user, self._runtime.clock.now())
        self._turns.penalize(host, user, delay_ms)
        return delay_ms

    def login_succeeded(self, host: str) -> None:
        """Forgive an address, unless it tries many users."""
        self._limits.succeeded(host)

    def check_password(self, user: str, password: str, host: str, done: OnPassword) -> None:
        """Call `done` with the credential that this is the password of, when it is the turn of the host."""

        def begin(finished: Finished) -> None:
            def checked(outcome: ScramCredential | Refused) -> None:
                done(outcome)
                finished(isinstance(outcome, ScramCredential))

            self._check_password(user, password, checked)

        self._turns.take(host, user, begin, lambda: done(Refused(TOO_MANY, user, is_judged=False)))

    def _check_password(self, user: str, password: str, done: OnPassword) -> None:
        credential = self._stored(user) or self._decoys.of(user, self._decoys.checked_mechanism)
        key = user, credential.stored_key
        digest = hmac.digest(self._secret, password.encode(), "sha256")
        known = self._known.get(key)
        if known is not None and hmac.compare_digest(known, digest):
            self._known.move_to_end(key)
            done(credential)
            return

        def checked(is_right: bool) -> None:
            if not is_right:
                done(Refused(f"{user}: unknown user or wrong password", user))
            elif self._stored(user) != credential:
                done(Refused(f"{user}: the password was changed during the login", user))
            else:
                self._known[key] = digest
                if len(self._known) > KNOWN_PASSWORDS_MAX:
                    self._known.popitem(last=False)
                done(credential)

        if not self._check(partial(is_password, credential, password), checked):
            done(Refused("too many passwords wait to be checked", user, is_judged=False))

    def _stored(self, user: str) -> ScramCredential | None:
        """What a password of the user is checked by."""
        for mechanism in ScramMechanism:
            found = self._image.credentials.get((user, mechanism))
            if found is not None:
                return found
        return None

    def _check(self, work: Callable[[], bool], checked: Callable[[bool], None]) -> bool:
        """Have a thread check a password, when it is its turn; returns False if too many wait."""

        def done(is_right: bool) -> None:
            self._checks -= 1
            if self._waiting:
                self._waiting.popleft()()
            checked(is_right)

        def check() -> None:
            self._checks += 1
            # If too much waits for the threads already, this login may be tried again.
            self._runtime.spawn.spawn(work, done, lambda _error: done(False), ExecutorKind.DISK)

        if self._checks < CHECKS_MAX:
            check()
        elif len(self._waiting) < WAITING_CHECKS_MAX:
            self._waiting.append(check)
        else:
            return False
        return True


class _ScramLogin:
    def __init__(self, exchange: ScramExchange, turns: LoginTurns, host: str) -> None:
        self._exchange = exchange
        self._turns = turns
        self._host = host

    def step(self, content: bytes, on_step: OnStep) -> None:
        user = self._exchange.user
        if not user:
            # Nothing is proved before there is a challenge.
            on_step(self._exchange.step(content))
            return

        def begin(finished: Finished) -> None:
            step = self._exchange.step(content)
            on_step(step)
            finished(isinstance(step, LoggedIn))

        self._turns.take(self._host, user, begin, lambda: on_step(Refused(TOO_MANY, user, is_judged=False)))


class _DelegateLogin:
    def __init__(self, login: DelegateLogin) -> None:
        self._login = login

    def step(self, content: bytes, on_step: OnStep) -> None:
        on_step(self._login.step(content))


class _PlainLogin:
    def __init__(self, authenticator: Authenticator, host: str) -> None:
        self._authenticator = authenticator
        self._host = host

    def step(self, content: bytes, on_step: OnStep) -> None:
        try:
            user, password = read_plain_message(content)
        except ProtocolError as error:
            on_step(Refused(str(error)))
            return

        def checked(outcome: ScramCredential | Refused) -> None:
            on_step(outcome if isinstance(outcome, Refused) else LoggedIn(user))

        self._authenticator.check_password(user, password, self._host, checked)


class _TokenLogin:
    def __init__(self, tokens: TokenVerifier) -> None:
        self._tokens = tokens

    def step(self, content: bytes, on_step: OnStep) -> None:
        try:
            message = read_oauth_message(content)
        except ProtocolError as error:
            on_step(Refused(str(error)))
            return

        def verified(token: Token | str) -> None:
            if isinstance(token, str):
                on_step(Refused(token))
            elif message.authorization_id not in ("", token.user):
                on_step(Refused(f"{token.user} wants to act as {message.authorization_id}", token.user))
            else:
                on_step(LoggedIn(token.user, expires=token.expires))

        self._tokens.verify(message.token, verified)
