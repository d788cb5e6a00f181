"""A token endpoint as OpenID providers have it, on a port of this machine.

It gives tokens for clients' credentials, for signed assertions, and for machines of a cloud that ask without
either; some of its paths give tokens that have expired.
"""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar
from urllib.parse import parse_qs, urlsplit

import jwt
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from tests.compatibility.secured_node import Issuer

CLIENT_ID, CLIENT_SECRET, SCOPE = "suite", "suite-secret", "test"
CREDENTIALS, ASSERTION = "client_credentials", "urn:ietf:params:oauth:grant-type:jwt-bearer"
# What a machine of Azure has to say.
MACHINE_FIELDS = ("api-version", "resource", "client_id")
VALID, EXPIRED, INVALID = "/token", "/expired", "/nothing"


class TokenEndpoint(BaseHTTPRequestHandler):
    """One request for a token."""

    token: ClassVar[Callable[[bool], str]]
    # Whose assertions are believed.
    client_key: ClassVar[Path | None]

    def do_GET(self) -> None:
        asked = parse_qs(urlsplit(self.path).query)
        is_whole = all(asked.get(field) for field in MACHINE_FIELDS)
        self._answer(None if is_whole else "invalid_request")

    def do_POST(self) -> None:
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        self._answer(self._problem({name: values[0] for name, values in form.items()}))

    def _problem(self, form: dict[str, str]) -> str | None:
        if form.get("scope", SCOPE) != SCOPE:
            return "invalid_scope"
        match form.get("grant_type"):
            case grant if grant == CREDENTIALS:
                return None if "Authorization" in self.headers else "invalid_client"
            case grant if grant == ASSERTION:
                return None if self._is_signed(form.get("assertion", "")) else "invalid_grant"
        return "unsupported_grant_type"

    def _is_signed(self, assertion: str) -> bool:
        """Whether the client has signed it, with the algorithm that it names."""
        if self.client_key is None:
            return False
        key = load_pem_private_key(self.client_key.read_bytes(), None).public_key()
        try:
            jwt.decode(assertion, key, ["RS256", "ES256"], {"verify_aud": False})  # type: ignore[arg-type]
        except (jwt.InvalidTokenError, TypeError, ValueError):
            return False
        return True

    def _answer(self, problem: str | None) -> None:
        path = urlsplit(self.path).path
        if path not in (VALID, EXPIRED):
            self._send(404, {"error": "not_found"})
        elif problem is not None:
            self._send(400, {"error": problem})
        else:
            token = type(self).token(path == EXPIRED)
            self._send(200, {"access_token": token, "token_type": "Bearer", "expires_in": 3_600})

    def _send(self, status: int, body: dict[str, object]) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Nothing: the suite's own output is long enough."""


@contextmanager
def token_endpoint(issuer: Issuer, user: str, seconds: int, client_key: Path | None = None) -> Iterator[str]:
    """Serve tokens for a user, each good for so long; yields the address that paths are added to.

    Assertions count that are signed with the `client_key`.
    """

    def token(is_expired: bool) -> str:
        return issuer.token(user, -60 if is_expired else seconds, client_id=user)

    handler = type("Handler", (TokenEndpoint,), {"token": staticmethod(token), "client_key": client_key})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
