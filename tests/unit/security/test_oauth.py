"""Bearer tokens that do not count, and issuers that misbehave."""

import base64
import hashlib
import hmac
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import RSAAlgorithm

from penstock.security import oauth
from penstock.security.oauth import JwtVerifier, OAuthError, VerifiedToken, keys_in, read_keys
from penstock.security.options import OAuthOptions
from tests.support.manual_runtime import HandSyncs, HandTimers, hand_runtime

KEY = rsa.generate_private_key(65_537, 2_048)
LATER = 4_000_000_000


def jwks(*keys: dict[str, Any]) -> str:
    return json.dumps({"keys": list(keys)})


def public(key: rsa.RSAPrivateKey = KEY, **fields: Any) -> dict[str, Any]:
    return {**json.loads(RSAAlgorithm.to_jwk(key.public_key())), "kid": "k", "use": "sig", **fields}


def part(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def outcome(tmp_path: Path, token: str, *, user_claim: str = "sub") -> VerifiedToken | str:
    path = tmp_path / "jwks.json"
    path.write_text(jwks(public()))
    timers = HandTimers()
    runtime = hand_runtime(timers, HandSyncs())
    verifier = JwtVerifier(runtime, OAuthOptions(str(path), user_claim=user_claim))
    verifier.start()
    timers.run()
    found: list[VerifiedToken | str] = []
    verifier.verify(token, found.append)
    timers.run()
    (result,) = found
    return result


def signed(**claims: Any) -> str:
    return jwt.encode({"sub": "alice", "exp": LATER, **claims}, KEY, "RS256", {"kid": "k"})


def test_a_token_of_the_issuer_counts(tmp_path: Path) -> None:
    found = outcome(tmp_path, signed())

    assert isinstance(found, VerifiedToken)
    assert found.user == "alice"


def forged_none() -> str:
    return jwt.encode({"sub": "admin", "exp": LATER}, "", "none", {"kid": "k"})


def forged_with_the_public_key() -> str:
    """HS256 with the PEM of the issuer's public key as the secret, which everyone has."""
    secret = KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    head = part(json.dumps({"alg": "HS256", "typ": "JWT", "kid": "k"}).encode())
    said = f"{head}.{part(json.dumps({'sub': 'admin', 'exp': LATER}).encode())}"
    return f"{said}.{part(hmac.digest(secret, said.encode(), hashlib.sha256))}"


def forged_with_a_key_inside() -> str:
    own = rsa.generate_private_key(65_537, 2_048)
    headers = {"kid": "k", "jwk": public(own), "jku": "http://127.0.0.1:1/keys", "x5u": "http://127.0.0.1:1/"}
    return jwt.encode({"sub": "admin", "exp": LATER}, own, "RS256", headers)


def deep(depth: int) -> str:
    head = b'{"alg":"RS256","kid":"k","x":' + b"[" * depth + b"]" * depth + b"}"
    return f"{part(head)}.{part(b'{}')}.{part(b'x')}"


@pytest.mark.parametrize(
    "token",
    [
        forged_none(),
        forged_with_the_public_key(),
        forged_with_a_key_inside(),
        deep(20_000),
        "a" * 60_000,
        "a.b.c",
        "",
        jwt.encode({"sub": "admin", "exp": LATER}, KEY, "RS256", {"kid": "../../etc/passwd"}),
        jwt.encode({"sub": "admin", "exp": LATER}, KEY, "RS256", {"kid": "k" * 10_000}),
        signed(exp=1),
        signed(sub=["admin"]),
        signed(sub="a" * 10_000),
        signed(exp=float("inf")),
    ],
)
def test_a_token_that_does_not_count_is_refused_with_a_reason(tmp_path: Path, token: str) -> None:
    assert isinstance(outcome(tmp_path, token), str)


def test_an_expiry_in_quotes_is_a_number(tmp_path: Path) -> None:
    found = outcome(tmp_path, signed(exp=str(LATER)))

    assert isinstance(found, VerifiedToken)
    assert found.expires == VerifiedToken("", outcome(tmp_path, signed()).expires).expires  # type: ignore[union-attr]


def test_a_token_for_longer_than_there_are_years_is_one_for_a_long_time(tmp_path: Path) -> None:
    found = outcome(tmp_path, signed(exp=10**30))

    assert isinstance(found, VerifiedToken)
    # What clients and statements are told in milliseconds has 64 bits.
    assert found.expires // 1_000_000 < 2**62


def test_a_document_that_is_nested_deeply_has_no_keys() -> None:
    with pytest.raises(OAuthError, match="no JWKS document"):
        keys_in(b'{"keys":' + b"[" * 100_000)


def test_a_key_whose_id_is_no_text_is_a_key_all_the_same() -> None:
    row = public(rsa.generate_private_key(65_537, 2_048)) | {"kid": ["a", "list"]}

    assert len(keys_in(jwks(row).encode())) == 1


def test_an_issuer_that_speaks_no_http_is_named() -> None:
    with issuer(b"SSH-2.0-OpenSSH\r\n") as address, pytest.raises(OAuthError, match="SSH"):
        read_keys(address)


def test_shared_secrets_and_short_keys_are_no_keys(tmp_path: Path) -> None:
    path = tmp_path / "jwks.json"
    path.write_text(
        jwks(
            {"kty": "oct", "k": part(b"secret"), "kid": "o", "alg": "HS256"},
            public(rsa.generate_private_key(65_537, 1_024), kid="short"),
        )
    )

    with pytest.raises(OAuthError, match="no key that signs tokens"):
        read_keys(str(path))


@contextmanager
def issuer(*pieces: bytes, gap: threading.Event | None = None) -> Iterator[str]:
    """An HTTP server that sends these pieces to its first client, the next one only when `gap` lets it."""
    with socket.create_server(("127.0.0.1", 0)) as door:

        def serve() -> None:
            client, _ = door.accept()
            with client:
                client.recv(65_536)
                try:
                    for piece in pieces:
                        client.sendall(piece)
                        if gap is not None:
                            gap.wait(0.05)
                except OSError:
                    return

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{door.getsockname()[1]}/keys"
        finally:
            thread.join()


def test_an_issuer_that_drips_does_not_hold_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oauth, "FETCH_SECONDS", 0.3)
    head = b"HTTP/1.1 200 OK\r\n\r\n"
    drips = issuer(head, *[b" "] * 1_000, gap=threading.Event())
    with drips as address, pytest.raises(OAuthError, match="takes longer"):
        read_keys(address)


def test_an_issuer_that_sends_too_much_is_not_heard_out() -> None:
    floods = issuer(b"HTTP/1.1 200 OK\r\n\r\n", *[bytes(1 << 16)] * 64)
    with floods as address, pytest.raises(OAuthError, match="larger than"):
        read_keys(address)


def test_keys_are_not_fetched_in_clear_because_a_redirect_says_so() -> None:
    head = b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"
    with issuer(head) as address, pytest.raises(OAuthError, match="without TLS"):
        read_keys(address)
