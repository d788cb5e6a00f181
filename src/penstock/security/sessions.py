"""Who is calling, and through which listener."""

import hashlib
from typing import Literal, NamedTuple, TypeAlias

from penstock.core.metadata.access import AclOperation

# Longer names are rare, and clients may make up as many as they like.
NAME_CHARS_MAX = 64
_HASH_BYTES = 16


def name_key(name: str) -> str | bytes:
    """A name that a client chose, as a key of what is kept about it: of a long one the hash.

    It is of another type, so that no name is taken for the hash of another one.
    """
    if len(name) <= NAME_CHARS_MAX:
        return name
    return hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=_HASH_BYTES).digest()


# How a caller of a node's other servers came; `page` is those of the node itself.
CallerProtocol: TypeAlias = Literal["REST", "WebSocket", "gRPC", "page"]


def authorization_of(header: str) -> tuple[str, str]:
    """The scheme in lower case and the value of an Authorization; one caller may write them in many ways."""
    scheme, _, value = header.partition(" ")
    return scheme.lower(), value.strip()


class Principal(NamedTuple):
    """An identity, written as Kafka's tools write it: `User:alice`."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS = Principal("User", "ANONYMOUS")


class Session(NamedTuple):
    """What a request's permissions and quotas depend on."""

    principal: Principal
    listener: str
    client_id: str
    host: str
    # The principal as access rules write it.
    principal_name: str = "User:ANONYMOUS"
    # What an API key narrows its user's permissions down to, and what that implies; None is everything.
    scope: frozenset[AclOperation] | None = None
