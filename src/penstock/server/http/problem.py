"""Errors of the HTTP server as problem+json (RFC 9457): one shape for all.

    {"type": "about:blank", "title": "Invalid request", "status": 400,
     "detail": "Expected `int`, got `str`", "field": "partition", "code": "INVALID_REQUEST"}

`field` names what is wrong in a body or a query; `code` is Kafka's name of the error, where it has one.
"""

import re

import msgspec

from penstock.core.protocol import ErrorCode
from penstock.server.gateway.errors import status_of
from penstock.server.gateway.memory import MemoryUsedUp

PROBLEM_JSON = "application/problem+json"
_PATH = re.compile(r" - at `(key in )?\$(?P<path>[^`]*)`$")
_NAMED = re.compile(r"(unknown|required) field `(?P<name>[^`]*)`")


class ProblemBody(msgspec.Struct, frozen=True, omit_defaults=True):
    """An error, for a program and for a person."""

    title: str
    status: int
    detail: str
    field: str | None = None
    code: str | None = None
    type: str = "about:blank"


class Problem(Exception):
    """Ends a request with an error."""

    def __init__(
        self, status: int, title: str, detail: str, *, field: str | None = None, code: str | None = None
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.body = ProblemBody(title, status, detail, field, code)

    def within(self, where: str) -> "Problem":
        """The same, with the name of what holds the field."""
        body = self.body
        field = where.rstrip(".") if body.field is None else where + body.field
        return Problem(self.status, body.title, body.detail, field=field, code=body.code)


def problem_body(status: int, title: str, detail: str) -> bytes:
    """The body of an error that no application sees."""
    return msgspec.json.encode(ProblemBody(title, status, detail))


def invalid(field: str | None, detail: str) -> Problem:
    """A field of a request that says something impossible."""
    return Problem(400, "Invalid request", detail, field=field, code=ErrorCode.INVALID_REQUEST.name)


def invalid_json(error: msgspec.DecodeError, where: str = "", *, syntax: str = "JSON") -> Problem:
    """What msgspec says about a body; `where` is put before the field that it names."""
    text = str(error)
    found = _PATH.search(text)
    path = "" if found is None else found["path"].lstrip(".")
    named = _NAMED.search(text)
    if named is not None:
        path = f"{path}.{named['name']}" if path else named["name"]
    detail = text if found is None else text[: found.start()]
    if isinstance(error, msgspec.ValidationError):
        return invalid(where + path if path else (where.rstrip(".") or None), detail)
    return invalid(where.rstrip(".") or None, f"this is not {syntax}: {detail}")


def not_utf_8(error: UnicodeDecodeError, field: str | None = None) -> Problem:
    """Text that is none; msgspec does not say in which field."""
    return invalid(field, f"this is not JSON: it is not UTF-8 ({error.reason})")


def no_memory(error: MemoryUsedUp) -> Problem:
    """A request that there is no room for at the moment."""
    return Problem(503, "Too many bytes at once", str(error))


def not_identified() -> Problem:
    """A caller that is nobody. Why is said in the node's log: a stranger need not know."""
    detail = "say who you are: an API key, a token, or a user and a password"
    return Problem(401, "Not authenticated", detail, code=ErrorCode.SASL_AUTHENTICATION_FAILED.name)


def failed(code: int, detail: str, field: str | None = None) -> Problem:
    """An error of the cluster."""
    status = status_of(code)
    name = ErrorCode(code).name if code in ErrorCode._value2member_map_ else str(code)
    return Problem(status.http, status.title, detail, field=field, code=name)
