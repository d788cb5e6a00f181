"""What a gateway asks its node about callers, on the node's private port: who they are, and whether still.

    PUT /v1/gateway/login   {"token": …, "host": …, "authorization": …, "protocol": "gRPC"}
    PUT /v1/gateway/renew   {"token": …, "statement": …, "key": …}

    200  {"user": …, "statement": …, "key": …}
    401  it is nobody (any more)
    503  the cluster has no secret yet

The token is a secret of the node and the gateway that it has started; nobody else is answered.
"""

import msgspec

from penstock.security.sessions import CallerProtocol

LOGIN, RENEW = "login", "renew"


class LoginQuestion(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a caller says about itself, and from where; the certificate is what TLS has checked (DER)."""

    token: str
    host: str
    authorization: str = ""
    api_key: str = ""
    certificate: bytes | None = None
    protocol: CallerProtocol = "REST"

    def __repr__(self) -> str:
        return "LoginQuestion()"


class RenewQuestion(msgspec.Struct, frozen=True):
    """A statement that is about to end, and its key."""

    token: str
    statement: bytes
    key: bytes

    def __repr__(self) -> str:
        return "RenewQuestion()"


class LoginAnswer(msgspec.Struct, frozen=True):
    """Who the caller is; the gateway asks again after `renew_ms`."""

    user: str
    statement: bytes
    key: bytes
    renew_ms: int

    def __repr__(self) -> str:
        return f"LoginAnswer(user={self.user!r})"
