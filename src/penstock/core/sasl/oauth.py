"""OAUTHBEARER (RFC 7628): a bearer token in one message.

n,[a=authorization id], 0x01 auth=Bearer <token> 0x01 key=value 0x01 … 0x01
"""

import json
from typing import NamedTuple

from penstock.core.model import ProtocolError

MESSAGE_BYTES_MAX = 64 << 10
EXTENSIONS_MAX = 50
_KEY = "auth"
_SCHEME = "bearer "
_HEAD_PARTS = 3


class OAuthMessage(NamedTuple):
    """A token, and what the client adds to it (KIP-342)."""

    token: str
    authorization_id: str = ""
    extensions: tuple[tuple[str, str], ...] = ()

    def __repr__(self) -> str:
        return "OAuthMessage()"


def read_oauth_message(content: bytes) -> OAuthMessage:
    """Read the message, or raise ProtocolError."""
    if len(content) > MESSAGE_BYTES_MAX:
        raise ProtocolError(f"an OAUTHBEARER message of {len(content)} bytes")
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise ProtocolError("an OAUTHBEARER message is UTF-8") from None
    head, *pairs = text.split("\x01")
    authorization_id = _authorization_id(head)
    if pairs[-2:] != ["", ""] or len(pairs) > EXTENSIONS_MAX:
        raise ProtocolError("not an OAUTHBEARER message")
    fields = [_field(pair) for pair in pairs[:-2]]
    tokens = [value for key, value in fields if key == _KEY]
    if len(tokens) != 1 or tokens[0][: len(_SCHEME)].lower() != _SCHEME:
        raise ProtocolError("an OAUTHBEARER message has one bearer token")
    token = tokens[0][len(_SCHEME) :].strip()
    if not token:
        raise ProtocolError("an OAUTHBEARER message without a token")
    return OAuthMessage(token, authorization_id, tuple(field for field in fields if field[0] != _KEY))


def _authorization_id(head: str) -> str:
    """Who the client wants to be, if it says so; it asks for no channel binding."""
    parts = head.split(",")
    if len(parts) != _HEAD_PARTS or parts[0] != "n" or parts[2] or parts[1][:2] not in ("", "a="):
        raise ProtocolError("not an OAUTHBEARER message")
    return parts[1][2:]


def _field(pair: str) -> tuple[str, str]:
    key, equals, value = pair.partition("=")
    if not equals:
        raise ProtocolError("an OAUTHBEARER message with a field that has no value")
    return key, value


def invalid_token(scope: str = "") -> bytes:
    """What a client is told about a token that does not count; it says 0x01 to that, and is refused."""
    error = {"status": "invalid_token"} | ({"scope": scope} if scope else {})
    return json.dumps(error, separators=(",", ":")).encode()
