"""Bearer tokens of OAuth 2.0: JSON web tokens that an issuer has signed.

    header.payload.signature     who, until when, for whom; signed with a key of the issuer

The issuer's public keys come from a JWKS document, a file or an http(s) address, which is read at the start,
from time to time, and when a token names a key that is not known: issuers replace their keys. Signing
methods with a shared secret, and none at all, are not accepted, whatever a token says of itself.
"""

import json
import urllib.request
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

from penstock.core.model import MILLISECOND, SECOND, Instant, PenstockError
from penstock.observability import log
from penstock.runtime import ExecutorKind, Runtime
from penstock.runtime.loop import MachineClock
from penstock.security.address_mask import mask_address
from penstock.security.options import OAuthOptions

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
KEYS_BYTES_MAX = 1 << 20
KEYS_MAX = 100
FETCH_SECONDS = 5.0
READ_BYTES = 16 << 10
RSA_BITS_MIN = 2_048
USER_CHARS_MAX = 1_000
# The end of the year 9999: a token for longer is as good as one until then.
EXPIRES_SECONDS_MAX = 253_402_300_799
# Tokens with keys that nobody knows make us look for new ones, but not more often than this.
REFRESH_AGAIN_NS = 10 * SECOND
# Logins that wait for the keys.
WAITING_MAX = 1_000


class OAuthError(PenstockError):
    """The issuer's keys cannot be had; says why."""


class VerifiedToken(NamedTuple):
    """What a token says that counts."""

    user: str
    expires: Instant


class JwtVerifier:
    """Checks tokens with the keys of one issuer."""

    def __init__(self, runtime: Runtime, options: OAuthOptions) -> None:
        self._runtime = runtime
        self._options = options
        self._keys: dict[str, jwt.PyJWK] = {}
        self._is_refreshing = False
        self._refreshed_at: Instant | None = None
        self._waiting: list[Callable[[], None]] = []

    def start(self) -> None:
        """Read the keys, now and from time to time."""
        self._refresh()

    def verify(self, token: str, done: Callable[[VerifiedToken | str], None]) -> None:
        """Call `done` with what the token says, or with why it does not count."""
        try:
            key_id = str(jwt.get_unverified_header(token).get("kid", ""))
        except (jwt.InvalidTokenError, RecursionError) as error:
            # Depth is what a stranger can make a header of.
            done(f"not a token: {error}")
            return
        if self._key(key_id) is not None or not self._may_refresh():
            done(self._verified(token, key_id))
            return
        # Perhaps the issuer has new keys.
        if len(self._waiting) >= WAITING_MAX:
            done("too many logins wait for the issuer's keys")
            return
        self._waiting.append(lambda: done(self._verified(token, key_id)))
        self._refresh()

    def _key(self, key_id: str) -> jwt.PyJWK | None:
        """The key with this id; a token without one means the only key there is."""
        if not key_id and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        return self._keys.get(key_id)

    def _may_refresh(self) -> bool:
        last = self._refreshed_at
        return self._is_refreshing or last is None or self._runtime.clock.now() - last >= REFRESH_AGAIN_NS

    def _verified(self, token: str, key_id: str) -> VerifiedToken | str:
        key, options = self._key(key_id), self._options
        if key is None:
            return f"the issuer has no key {key_id!r}"
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                key,
                algorithms=list(ALGORITHMS),
                issuer=options.issuer or None,
                audience=options.audience or None,
                leeway=options.clock_skew_ms / 1_000,
                options={"require": ["exp"], "verify_aud": bool(options.audience)},
            )
            expires_ms = min(int(claims["exp"]), EXPIRES_SECONDS_MAX) * 1_000
        except (jwt.InvalidTokenError, RecursionError, OverflowError, TypeError, ValueError) as error:
            return f"the token does not count: {error}"
        user = claims.get(options.user_claim)
        if not isinstance(user, str) or not 0 < len(user) <= USER_CHARS_MAX:
            return f"the token has no claim {options.user_claim}"
        if options.scope and options.scope not in _scopes(claims):
            return f"the token of {user} lacks the scope {options.scope}"
        left_ms = expires_ms - self._runtime.clock.wall() + options.clock_skew_ms
        return VerifiedToken(user, Instant(self._runtime.clock.now() + left_ms * MILLISECOND))

    def _refresh(self) -> None:
        if self._is_refreshing:
            return
        self._is_refreshing = True
        source = self._options.jwks

        def read(keys: dict[str, jwt.PyJWK]) -> None:
            if keys.keys() != self._keys.keys():
                log.info("oauth.keys_read", source=mask_address(source), keys=len(keys))
            self._keys = keys
            self._refreshed()

        def failed(error: Exception) -> None:
            # Those that we have go on counting.
            log.error("oauth.keys_unavailable", source=mask_address(source), reason=str(error))
            self._refreshed()

        self._runtime.spawn.spawn(lambda: read_keys(source), read, failed, ExecutorKind.DISK)

    def _refreshed(self) -> None:
        self._is_refreshing = False
        self._refreshed_at = now = self._runtime.clock.now()
        waiting, self._waiting = self._waiting, []
        for go_on in waiting:
            go_on()
        due = Instant(now + self._options.refresh_ms * MILLISECOND)
        self._runtime.timers.at(due, self._refresh_if_old)

    def _refresh_if_old(self) -> None:
        last = self._refreshed_at
        if last is None or self._runtime.clock.now() - last >= self._options.refresh_ms * MILLISECOND:
            self._refresh()


def read_keys(source: str) -> dict[str, jwt.PyJWK]:
    """The keys of the JWKS document at a path or an address; OAuthError says what is wrong with it."""
    try:
        content = _read(source)
    except (OSError, ValueError, HTTPException) as error:
        raise OAuthError(getattr(error, "strerror", None) or str(error)) from None
    return keys_in(content)


def keys_in(content: bytes) -> dict[str, jwt.PyJWK]:
    """The keys of a JWKS document by their ids, or OAuthError."""
    try:
        rows = json.loads(content)["keys"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise OAuthError("it is no JWKS document") from None
    if not isinstance(rows, list) or len(rows) > KEYS_MAX:
        raise OAuthError(f"it has no list of keys, or more than {KEYS_MAX}")
    keys: dict[str, jwt.PyJWK] = {}
    for row in rows:
        try:
            key = jwt.PyJWK(row)
        except (jwt.PyJWTError, ValueError, TypeError, AttributeError):
            # Of a kind that we do not know, or for something else.
            continue
        if key.algorithm_name in ALGORITHMS and key.public_key_use in (None, "sig") and _is_strong(key):
            # Anything may stand there that JSON has.
            keys[str(key.key_id or "")] = key
    if not keys:
        raise OAuthError("it has no key that signs tokens")
    return keys


def _is_strong(key: jwt.PyJWK) -> bool:
    return not isinstance(key.key, rsa.RSAPublicKey) or key.key.key_size >= RSA_BITS_MIN


class _NoDowngrade(urllib.request.HTTPRedirectHandler):
    """Follows redirects to https alone: keys that came in clear could be anybody's."""

    def redirect_request(
        self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        if urlsplit(newurl).scheme != "https":
            raise OAuthError("it is redirected to an address without TLS")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _fetch(source: str) -> bytes:
    """What is at an address, within a time for all of it."""
    clock = MachineClock()
    deadline = clock.now() + int(FETCH_SECONDS * SECOND)
    content = bytearray()
    with urllib.request.build_opener(_NoDowngrade).open(source, timeout=FETCH_SECONDS) as response:
        while len(content) <= KEYS_BYTES_MAX:
            # One read of the socket at a time: a server that sends a byte now and then holds no thread.
            piece = response.read1(READ_BYTES)
            if not piece:
                break
            content += piece
            if clock.now() > deadline:
                raise OAuthError(f"it takes longer than {FETCH_SECONDS:.0f} s")
    return bytes(content)


def _read(source: str) -> bytes:
    if urlsplit(source).scheme in ("http", "https"):
        content = _fetch(source)
    else:
        with Path(source).open("rb") as file:
            content = file.read(KEYS_BYTES_MAX + 1)
    if len(content) > KEYS_BYTES_MAX:
        raise OAuthError(f"it is larger than {KEYS_BYTES_MAX} bytes")
    return content


def _scopes(claims: dict[str, Any]) -> list[str]:
    found: list[str] = []
    for name in ("scope", "scp"):
        value = claims.get(name)
        if isinstance(value, str):
            found += value.split()
        elif isinstance(value, list):
            found += [each for each in value if isinstance(each, str)]
    return found
