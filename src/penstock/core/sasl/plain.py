"""PLAIN (RFC 4616): the user's name and password in one message.

[authorization id] NUL user NUL password
"""

from typing import NamedTuple

from penstock.core.model import ProtocolError

MESSAGE_BYTES_MAX = 4_096
_PARTS = 3


class PlainMessage(NamedTuple):
    """Who the client says it is, and how it proves that."""

    user: str
    password: str

    def __repr__(self) -> str:
        return f"PlainMessage(user={self.user!r})"


def read_plain_message(content: bytes) -> PlainMessage:
    """Read the message, or raise ProtocolError. Nobody may act as another user."""
    if len(content) > MESSAGE_BYTES_MAX:
        raise ProtocolError(f"a PLAIN message of {len(content)} bytes")
    parts = content.split(b"\x00")
    if len(parts) != _PARTS:
        raise ProtocolError("a PLAIN message has three parts")
    try:
        authorization_id, user, password = (part.decode() for part in parts)
    except UnicodeDecodeError:
        raise ProtocolError("a PLAIN message is UTF-8") from None
    if not user or not password:
        raise ProtocolError("a PLAIN message has a user and a password")
    if authorization_id not in ("", user):
        raise ProtocolError("a PLAIN message has a user that wants to act as another")
    return PlainMessage(user, password)
