"""Callers of a gateway: who they are, and a way to the cluster for each of them.

    request ─► identify ─► Caller ─► its own GatewayBackend ─► connections that log in as the caller

The node knows who somebody is (`logins`); the gateway remembers that for as long as the node says so, and
asks again every few seconds while the caller is there. What a caller may do is decided on the Kafka port, by
the same rules, quotas and log as for everyone else: here nothing is decided but that nobody is anonymous.

A caller is a user at a host, by one of its credentials. Those who were not heard of for a while lose their
connections, and whoever is revoked does at once: `ended` tells those who serve streams. One user has half of
the places at most, and so has one address, unless it may have more of the connections.
"""

import asyncio
import hashlib
import secrets
from collections import Counter, OrderedDict
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

import msgspec

from penstock.client.cluster import ClusterError
from penstock.core.protocol import ErrorCode
from penstock.core.sasl.delegation import SignedDelegation
from penstock.observability import log
from penstock.security.login_limits import network_of
from penstock.security.sessions import CallerProtocol, authorization_of
from penstock.server.gateway.backend import GatewayBackend
from penstock.server.gateway.logins import LOGIN, RENEW, LoginAnswer, LoginQuestion, RenewQuestion
from penstock.server.gateway.pages import NodePage

PREFIX = "/v1/gateway/"
HTTP_OK, HTTP_UNAUTHORIZED = 200, 401
# A caller whose statement could not be renewed for so long, because the node did not answer, is dropped.
UNCONFIRMED_SECONDS = 25.0
IDLE_SECONDS = 120.0
# Questions about callers that the node is asked at once: others wait.
LOGINS_AT_ONCE = 32
LOGINS_WAITING_MAX = 256
# The answer to a failed login may take ten seconds: one host that fails must leave room for the others.
HOST_LOGINS_AT_ONCE = 8
HOST_LOGINS_WAITING_MAX = 64
# One user has a half of the places.
USER_PARTS = 2
_answer = msgspec.json.Decoder(LoginAnswer)


class UnknownCaller(Exception):
    """The caller is nobody."""


class Credentials(NamedTuple):
    """What a request says about its caller; the certificate is what TLS has checked (DER)."""

    host: str
    authorization: str = ""
    api_key: str = ""
    certificate: bytes | None = None
    protocol: CallerProtocol = "REST"

    def __repr__(self) -> str:
        return f"Credentials(host={self.host!r})"

    @property
    def is_empty(self) -> bool:
        return not self.authorization and not self.api_key and self.certificate is None


def credentials_of(
    headers: Iterable[tuple[bytes, bytes]],
    host: str,
    certificate: bytes | None = None,
    protocol: CallerProtocol = "REST",
) -> Credentials:
    """What the headers of a request say; UnknownCaller if they say it twice."""
    authorization = api_key = None
    for name, value in headers:
        if name == b"authorization":
            if authorization is not None:
                raise UnknownCaller
            authorization = value.decode("latin-1")
        elif name == b"x-api-key":
            if api_key is not None:
                raise UnknownCaller
            api_key = value.decode("latin-1")
    return Credentials(host, authorization or "", api_key or "", certificate, protocol)


class Caller:
    """Somebody, and the way to the cluster that is theirs."""

    def __init__(
        self, answer: LoginAnswer, root: GatewayBackend, header: bytes = b"", network: str = ""
    ) -> None:
        """`header` is the hash of what it has said of itself, `network` what counts as its address."""
        self.user = answer.user
        self.network = network
        self.header = header
        self.signed = SignedDelegation(answer.statement, answer.key)
        # Set when the caller is nobody any more.
        self.ended = asyncio.Event()
        self.backend = root.acting_for(self)
        self.confirmed_at = self.used_at = root.now()
        self.renew_seconds = answer.renew_ms / 1_000
        # Requests and streams that are under way.
        self.uses = 0


class _HostLogins:
    """Logins of one host that are under way."""

    def __init__(self) -> None:
        self.slots = asyncio.Semaphore(HOST_LOGINS_AT_ONCE)
        self.count = 0


class Callers:
    """Those who call a gateway; used inside one event loop."""

    def __init__(self, root: GatewayBackend, token: str) -> None:
        self._root = root
        self._token = token
        # Keys of what is remembered are hashes that mean nothing elsewhere.
        self._salt = secrets.token_bytes(32)
        self._known: OrderedDict[bytes, Caller] = OrderedDict()
        # Hashes of the headers of those who are known, and how many are known by each.
        self._met: Counter[bytes] = Counter()
        self._logins: dict[bytes, asyncio.Task[Caller]] = {}
        self._slots = asyncio.Semaphore(LOGINS_AT_ONCE)
        self._hosts: dict[str, _HostLogins] = {}
        self._renewals: dict[bytes, asyncio.Task[None]] = {}

    def find(self, credentials: Credentials) -> Caller | None:
        """A caller that is known by these credentials, without asking the node."""
        caller = self._known.get(self._key(credentials))
        if caller is not None:
            caller.used_at = self._root.now()
        return caller

    def has_met(self, header: str | bytes) -> bool:
        """Whether somebody is known who says this of itself, in whichever header and from wherever."""
        return self._header_key(header) in self._met

    def _header_key(self, header: str | bytes) -> bytes:
        said = header.encode() if isinstance(header, str) else header
        return hashlib.sha256(self._salt + said).digest()

    async def identify(self, credentials: Credentials) -> Caller:
        """The caller; UnknownCaller if it is nobody, ClusterError if the node cannot say."""
        if credentials.is_empty:
            raise UnknownCaller
        key = self._key(credentials)
        if (known := self._known.get(key)) is not None:
            known.used_at = self._root.now()
            return known
        login = self._logins.get(key)
        if login is None:
            login = self._logins[key] = self._begin_login(key, credentials)
        return await asyncio.shield(login)

    def _begin_login(self, key: bytes, credentials: Credentials) -> asyncio.Task[Caller]:
        network = network_of(credentials.host)
        host = self._hosts.get(network) or _HostLogins()
        if len(self._logins) >= LOGINS_WAITING_MAX or host.count >= HOST_LOGINS_WAITING_MAX:
            raise ClusterError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "too many callers log in at once")
        self._hosts[network] = host
        host.count += 1

        def ended(_: asyncio.Task[Caller]) -> None:
            self._logins.pop(key, None)
            host.count -= 1
            if not host.count:
                del self._hosts[network]

        login = asyncio.get_running_loop().create_task(self._log_in(key, credentials, host))
        login.add_done_callback(ended)
        return login

    def _key(self, credentials: Credentials) -> bytes:
        """By all that a caller says: a secret is not compared with others, its hash is looked up."""
        parts = (
            credentials.host.encode(),
            *_read(credentials.authorization),
            credentials.api_key.encode(),
            credentials.certificate or b"",
        )
        digest = hashlib.sha256(self._salt)
        for part in parts:
            digest.update(len(part).to_bytes(4, "big") + part)
        return digest.digest()

    async def _log_in(self, key: bytes, credentials: Credentials, host: _HostLogins) -> Caller:
        question = LoginQuestion(
            token=self._token,
            host=credentials.host,
            authorization=credentials.authorization,
            api_key=credentials.api_key,
            certificate=credentials.certificate,
            protocol=credentials.protocol,
        )
        async with host.slots, self._slots:
            answer = await self._ask(LOGIN, question)
        network = network_of(credentials.host)
        await self._make_room(answer.user, network)
        header = self._header_key(credentials.authorization or credentials.api_key)
        caller = Caller(answer, self._root, header, network)
        self._known[key] = caller
        self._met[caller.header] += 1
        self._renewals[key] = asyncio.get_running_loop().create_task(self._keep(key, caller))
        return caller

    async def _make_room(self, user: str, network: str) -> None:
        """Forget whoever was not heard of for longest; those that are served are not forgotten."""
        while (crowd := self._crowd(user, network)) is not None:
            who, callers = crowd
            idle = [(caller.used_at, key) for key, caller in callers.items() if not caller.uses]
            if not idle:
                detail = f"{len(callers)} callers{who} are served already"
                raise ClusterError(ErrorCode.BROKER_NOT_AVAILABLE, detail)
            _, key = min(idle)
            await self._forget(key, is_revoked=False)

    def _crowd(self, user: str, network: str) -> tuple[str, dict[bytes, Caller]] | None:
        """Those who leave no room for another caller: of its user, of its address, or all."""
        limits = self._root.limits
        of_user = {key: caller for key, caller in self._known.items() if caller.user == user}
        if len(of_user) >= max(1, limits.callers_max // USER_PARTS):
            return " of this user", of_user
        nearby = {key: caller for key, caller in self._known.items() if caller.network == network}
        if len(nearby) >= limits.address_share(limits.callers_max):
            return " of your address", nearby
        return ("", dict(self._known)) if len(self._known) >= limits.callers_max else None

    async def _keep(self, key: bytes, caller: Caller) -> None:
        """Ask the node again and again whether the caller is who it was."""
        while True:
            await asyncio.sleep(caller.renew_seconds)
            if not caller.uses and self._root.now() - caller.used_at > IDLE_SECONDS:
                break
            question = RenewQuestion(self._token, caller.signed.statement, caller.signed.key)
            try:
                answer = await self._ask(RENEW, question)
            except UnknownCaller:
                log.info("gateway.caller_ended", user=caller.user)
                await self._forget(key, is_revoked=True)
                return
            except ClusterError:
                if self._root.now() - caller.confirmed_at < UNCONFIRMED_SECONDS:
                    continue
                await self._forget(key, is_revoked=True)
                return
            caller.signed = SignedDelegation(answer.statement, answer.key)
            caller.confirmed_at = self._root.now()
        await self._forget(key, is_revoked=False)

    async def refused(self, caller: Caller) -> None:
        """A broker did not believe that the caller is who it was: it has to log in again."""
        for key in [key for key, known in self._known.items() if known is caller]:
            await self._forget(key, is_revoked=True)

    async def _forget(self, key: bytes, *, is_revoked: bool) -> None:
        caller = self._known.pop(key, None)
        renewal = self._renewals.pop(key, None)
        if renewal is not None and renewal is not asyncio.current_task():
            renewal.cancel()
        if caller is None:
            return
        self._met[caller.header] -= 1
        if not self._met[caller.header]:
            del self._met[caller.header]
        if is_revoked:
            caller.ended.set()
        await caller.backend.close_connections()

    async def _ask(self, question: str, body: LoginQuestion | RenewQuestion) -> LoginAnswer:
        try:
            page: NodePage = await self._root.pages.put(PREFIX + question, msgspec.json.encode(body))
        except (OSError, TimeoutError) as error:
            raise ClusterError(
                ErrorCode.BROKER_NOT_AVAILABLE, f"the node does not respond: {error}"
            ) from None
        if page.status == HTTP_UNAUTHORIZED:
            raise UnknownCaller
        if page.status != HTTP_OK:
            detail = "the node cannot say yet who is calling"
            raise ClusterError(ErrorCode.BROKER_NOT_AVAILABLE, detail)
        return _answer.decode(page.body)

    async def close(self) -> None:
        for task in [*self._renewals.values(), *self._logins.values()]:
            task.cancel()
            with suppress(asyncio.CancelledError, UnknownCaller, ClusterError):
                await task
        for key in list(self._known):
            await self._forget(key, is_revoked=False)


def _read(authorization: str) -> tuple[bytes, bytes]:
    """What a header says, however it is written."""
    scheme, value = authorization_of(authorization)
    return scheme.encode(), value.encode()
