"""What a client of a SASL listener does before it is served, and again before its login ends.

    ApiVersions (as often as it likes) → SaslHandshake → SaslAuthenticate … → everything else

    handshake      no mechanism was agreed on
    login          messages of the mechanism are exchanged
    served         it is somebody, until its login expires

A login expires when its token does, or after `connections.max.reauth.ms` (KIP-368): a client that logs in
again in time is served without a gap, as the same principal and by the same mechanism; another one is closed
with its next request. What waits for records waits no longer than the login counts: it is answered then, and
a client that has waited in good faith logs in again behind it. One by the word of a node (PENSTOCK-DELEGATE)
ends as well when what it was made by is taken back: an API key, a password. On a listener without SASL that
is the only login there is, and clients without one are served as whoever their certificate says. A login that
fails is answered after a while, the longer the more have failed from there, and the next password from there
is checked no earlier (`LoginTurns`). The connection is closed a moment after the answer: clients that find
the end of a connection right behind an answer may not read the answer (kafka-python).
"""

from collections.abc import Callable
from functools import partial

from penstock.core.model import MILLISECOND, Instant
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.frames import API_VERSIONS_KEY
from penstock.core.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from penstock.core.sasl import DELEGATE, Challenge, DelegatedLogin, Delegation, LoggedIn, Refused, Step
from penstock.observability import log
from penstock.runtime import Clock
from penstock.security import Principal
from penstock.security.audit import LoginMeans
from penstock.security.authenticator import Authenticator, SaslLogin
from penstock.security.login_limits import FIRST_DELAY_MS
from penstock.server.kafka.request import Request

SASL_HANDSHAKE_KEY, SASL_AUTHENTICATE_KEY = 17, 36
BEFORE_LOGIN = frozenset({API_VERSIONS_KEY, SASL_HANDSHAKE_KEY, SASL_AUTHENTICATE_KEY})
CLOSED_AFTER_MS = 100
# A login takes four of them.
REQUESTS_MAX = 20
# Why is said in the log: a stranger need not know whether the user exists.
FAILED = "authentication failed: unknown user, or the credentials are wrong"


class ConnectionAuthentication:
    """The login of one connection."""

    def __init__(
        self,
        authenticator: Authenticator,
        clock: Clock,
        reauthenticate_ms: int,
        after_ms: Callable[[int, Callable[[], None]], object],
        *,
        is_optional: bool = False,
    ) -> None:
        """`is_optional`: whoever does not log in is served all the same; only gateways log in."""
        self._is_optional = is_optional
        self._authenticator = authenticator
        self._clock = clock
        self._reauthenticate_ms = reauthenticate_ms
        self._after_ms = after_ms
        self._mechanism = ""
        self._login: SaslLogin | None = None
        # Who is served, since when by which mechanism, and until when.
        self._user: str | None = None
        self._served_mechanism = ""
        self._expires: Instant | None = None
        # What it has asked for before it was anybody.
        self._requests = 0
        # By the word of a node: what it said, and the metadata by which it was last checked.
        self._delegation: Delegation | None = None
        self._checked: object = None

    @property
    def is_over(self) -> bool:
        """Whether the client has logged in once, or need not."""
        return self._user is not None or self._is_optional

    @property
    def is_current(self) -> bool:
        """Whether nobody has taken back what the login was made by."""
        return self._delegation is None or self._is_current(self._delegation)

    def within_login(self, wait_ms: int) -> int:
        """For how long a request may wait that wants to wait for so long: until the login expires."""
        if self._expires is None:
            return wait_ms
        return min(wait_ms, max(0, (self._expires - self._clock.now()) // MILLISECOND))

    def admits(self, api_key: int) -> bool:
        """Whether a request may be served now."""
        if self._user is None:
            if self._is_optional:
                return True
            self._requests += 1
            return api_key in BEFORE_LOGIN and self._requests <= REQUESTS_MAX
        if not self.is_current:
            return False
        if self._expires is None or self._clock.now() < self._expires:
            return True
        return api_key in BEFORE_LOGIN

    def _is_current(self, delegation: Delegation) -> bool:
        """Whether nobody has taken back what the login was made by; looked at when the metadata change."""
        delegations = self._authenticator.delegations
        assert delegations is not None
        image = delegations.image
        if image is not self._checked:
            if delegations.revocation_of(delegation) is not None:
                return False
            self._checked = image
        return True

    def shake_hands(self, mechanism: str, host: str) -> ErrorCode:
        """Agree on a mechanism with a client at this address."""
        if self._user is not None and mechanism != self._served_mechanism:
            # Nobody becomes somebody else on the way.
            return ErrorCode.ILLEGAL_SASL_STATE
        if self._is_optional and mechanism != DELEGATE:
            return ErrorCode.ILLEGAL_SASL_STATE
        login = self._authenticator.login(mechanism, host)
        if login is None:
            return ErrorCode.UNSUPPORTED_SASL_MECHANISM
        self._mechanism, self._login = mechanism, login
        return ErrorCode.NONE

    @property
    def mechanisms(self) -> tuple[str, ...]:
        return () if self._is_optional else self._authenticator.mechanisms

    def authenticate(self, content: bytes, call: Request) -> None:
        """Take a message of the mechanism, and reply to it."""
        if self._login is None:
            call.reply(_response(ErrorCode.ILLEGAL_SASL_STATE, "SaslHandshake comes first"))
            return
        # One that waits is enough; what follows may not be served before it is answered.
        call.pause_reads()
        self._login.step(content, partial(self._stepped, call))

    def _stepped(self, call: Request, step: Step) -> None:
        if not call.is_open and not isinstance(step, Refused):
            # Who does not wait for the answer has guessed all the same.
            return
        match step:
            case Challenge():
                call.reply(
                    SaslAuthenticateResponse(error_code=0, error_message=None, auth_bytes=step.content)
                )
                call.resume_reads()
            case LoggedIn():
                self._logged_in(call, step)
            case Refused():
                self._refused(call, step)

    def _logged_in(self, call: Request, step: LoggedIn) -> None:
        if self._user not in (None, step.user):
            self._refused(call, Refused(f"{self._user} wants to become {step.user}", step.user))
            return
        delegation = step.delegation if isinstance(step, DelegatedLogin) else None
        before = self._delegation
        if before is not None and (delegation is None or not delegation.is_same_caller(before)):
            self._refused(call, Refused(f"{before.user} wants to become another caller", step.user))
            return
        self._user, self._served_mechanism, self._login = step.user, self._mechanism, None
        lifetime_ms = self._lifetime_ms(step.expires)
        principal = Principal("User", step.user)
        if delegation is None:
            self._authenticator.login_succeeded(call.session.host)
            call.connection.log_in(principal)
        else:
            self._delegation = delegation
            scope = frozenset(delegation.scope) if delegation.scope else None
            call.connection.log_in(principal, delegation.host, scope)
        if call.connection.audit is not None:
            session = call.connection.session
            means = LoginMeans(None, "" if delegation is None else delegation.api_key)
            call.connection.audit.logged_in(session, self._mechanism, call.correlation_id, means.details)
        log.debug("kafka.logged_in", peer=call.connection.tcp.peer, user=step.user, mechanism=self._mechanism)
        call.reply(
            SaslAuthenticateResponse(
                error_code=0, error_message=None, auth_bytes=step.content, session_lifetime_ms=lifetime_ms
            )
        )
        call.resume_reads()

    def _lifetime_ms(self, expires: Instant | None) -> int:
        """For how long the login counts; 0 is for ever."""
        now = self._clock.now()
        ends = [] if expires is None else [expires]
        if self._reauthenticate_ms:
            ends.append(Instant(now + self._reauthenticate_ms * MILLISECOND))
        self._expires = min(ends, default=None)
        return 0 if self._expires is None else max(1, (self._expires - now) // MILLISECOND)

    def _delay_ms(self, call: Request, step: Refused) -> int:
        """Count a failed login; returns how long its answer waits."""
        if self._mechanism == DELEGATE or not step.is_judged:
            # There is nothing to guess there, and a gateway asks for many.
            return FIRST_DELAY_MS
        return self._authenticator.login_failed(call.session.host, step.user)

    def _refused(self, call: Request, step: Refused) -> None:
        self._login = None
        delay_ms = self._delay_ms(call, step)
        log.warning(
            "kafka.login_failed",
            peer=call.connection.tcp.peer,
            mechanism=self._mechanism,
            reason=step.reason[:200],
            delay_ms=delay_ms,
        )
        if call.connection.audit is not None:
            call.connection.audit.login_failed(
                call.session, self._mechanism, step.user, step.reason, call.correlation_id
            )

        def reply() -> None:
            if call.is_open:
                call.reply(_response(ErrorCode.SASL_AUTHENTICATION_FAILED, FAILED))
                # Nothing is read of it any more.
                self._after_ms(CLOSED_AFTER_MS, call.close)

        self._after_ms(delay_ms, reply)


def _response(code: ErrorCode, message: str) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(error_code=code, error_message=message, auth_bytes=b"")
