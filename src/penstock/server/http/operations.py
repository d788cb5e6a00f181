"""Operations of the REST API: what a request may hold, who handles it, what it returns.

    @OPERATIONS.add("GET", "/v1/topics/{topic}", "One topic", answer=TopicView)
    async def describe_topic(backend: GatewayBackend, request: RestRequest[NoQuery, None]) -> TopicView: …

The structs that are named there validate the query and the body, and the OpenAPI document is made of
them: what is documented is what is checked. An operation without `answer` returns a response itself.
"""

import functools
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from urllib.parse import parse_qsl, unquote

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from penstock.server.gateway.backend import GatewayBackend
from penstock.server.gateway.callers import Caller
from penstock.server.gateway.memory import RETRY_AFTER_SECONDS, MemoryShare
from penstock.server.http.array_limits import ArrayLimits
from penstock.server.http.body import read_body
from penstock.server.http.problem import PROBLEM_JSON, Problem, invalid, invalid_json, not_utf_8
from penstock.server.http.security_headers import CHALLENGE

JSON = "application/json"
QUERY_FIELDS_MAX = 100
UNAUTHORIZED, TOO_MANY_REQUESTS, SERVICE_UNAVAILABLE = 401, 429, 503
# In the scope of a request whose path is that of `escaped_path`.
ESCAPED = "penstock.escaped"
# In the scope of every request: the `MemoryShare` that its body and its response count in.
MEMORY = "penstock.memory"


# In the scope of a request where callers say who they are: the `Caller`.
CALLER = "penstock.caller"


def backend_of(scope: Scope, shared: GatewayBackend) -> GatewayBackend:
    """The way to the cluster for this request: its caller's own, or the one that everyone shares."""
    caller: Caller | None = scope.get(CALLER)
    return shared if caller is None else caller.backend


class RestStruct(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """A body or a query of a request: closed to fields it does not know."""


class RestAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The body of a response."""


class NoQuery(RestStruct, frozen=True):
    """A request that takes no parameters."""


Q = TypeVar("Q")
B = TypeVar("B")


@dataclass(frozen=True, slots=True)
class RestRequest(Generic[Q, B]):
    """A request that has been checked; `receive` has the rest of the body where an operation streams it."""

    path: Mapping[str, str]
    query: Q
    body: B
    headers: Mapping[bytes, bytes]
    receive: Receive
    raw_path: bytes
    memory: MemoryShare


Handler = Callable[..., Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path. `body` None: nothing is read; `is_streamed`: the handler reads it."""

    method: str
    path: str
    summary: str
    tag: str
    handler: Handler
    query: Any = NoQuery
    body: Any = None
    answer: Any = None
    status: int = 200
    is_streamed: bool = False
    # No body at all is one in which everything is left out.
    may_lack_body: bool = False
    # The handler is an ASGI application that takes the backend first.
    is_asgi: bool = False
    # Content types beside JSON, for the document.
    takes: tuple[str, ...] = ()
    returns: str = JSON


class OperationTable:
    """The operations of one family of routes."""

    def __init__(self, tag: str, about: str) -> None:
        self.tag = tag
        self.about = about
        self._operations: list[Operation] = []

    def add(self, method: str, path: str, summary: str, **details: Any) -> Callable[[Handler], Handler]:
        """Decorates the handler of an operation."""

        def register(handler: Handler) -> Handler:
            self._operations.append(Operation(method, path, summary, self.tag, handler, **details))
            return handler

        return register

    def __iter__(self) -> Iterator[Operation]:
        return iter(self._operations)


class PathEndpoint:
    """Every method of one path, as an ASGI application."""

    def __init__(self, backend: GatewayBackend, operations: Mapping[str, Operation]) -> None:
        self._backend = backend
        self._operations = operations

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        operation = self._operations.get(method)
        if operation is None:
            allowed = ", ".join(sorted(self._operations))
            problem = Problem(405, "Method not allowed", f"{scope['path']} takes {allowed}")
            await problem_response(problem, {"allow": allowed})(scope, receive, send)
            return
        if ESCAPED in scope:
            scope["path_params"] = {name: unquote(text) for name, text in scope["path_params"].items()}
        if operation.is_asgi:
            await operation.handler(backend_of(scope, self._backend), scope, receive, send)
            return
        response = await self._respond(operation, scope, receive)
        await response(scope, receive, send)

    async def _respond(self, operation: Operation, scope: Scope, receive: Receive) -> Response:
        query = parse_query(operation.query, scope["query_string"])
        body = None
        if operation.body is not None and not operation.is_streamed:
            limit = self._backend.limits.body_bytes_max
            content = await read_body(receive, limit, self._timeout, scope[MEMORY])
            is_lacking = operation.may_lack_body and not content
            body = operation.body() if is_lacking else decode_body(content, operation.body)
        request = RestRequest(
            path=scope["path_params"],
            query=query,
            body=body,
            headers=dict(scope["headers"]),
            receive=receive,
            raw_path=scope["raw_path"],
            memory=scope[MEMORY],
        )
        answer = await operation.handler(backend_of(scope, self._backend), request)
        if isinstance(answer, Response):
            return answer
        return Response(msgspec.json.encode(answer), operation.status, media_type=JSON)

    @property
    def _timeout(self) -> float:
        return self._backend.limits.body_timeout_ms / 1_000


def escaped_path(raw_path: bytes) -> str:
    """A path to find the endpoint by when names in it hold slashes: these, and percent signs, are escaped."""
    names = map(unquote, raw_path.decode("latin-1").split("/"))
    return "/".join([name.replace("%", "%25").replace("/", "%2F") for name in names])


def problem_response(problem: Problem, headers: Mapping[str, str] | None = None) -> Response:
    """An error as the response to a request."""
    if problem.status == SERVICE_UNAVAILABLE:
        headers = {"retry-after": str(RETRY_AFTER_SECONDS), **(headers or {})}
    elif problem.status == TOO_MANY_REQUESTS:
        headers = {"retry-after": "1", **(headers or {})}
    elif problem.status == UNAUTHORIZED:
        headers = {"www-authenticate": CHALLENGE, **(headers or {})}
    return Response(msgspec.json.encode(problem.body), problem.status, headers, media_type=PROBLEM_JSON)


def parse_query(kind: type[Q], text: bytes) -> Q:
    """The parameters of a request; Problem names the one that is wrong."""
    try:
        pairs = parse_qsl(
            text.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=QUERY_FIELDS_MAX
        )
    except ValueError:
        raise invalid(None, "the query of the URL cannot be read") from None
    values: dict[str, str] = {}
    for name, value in pairs:
        if name in values:
            raise invalid(name, f"`{name}` is given twice")
        values[name] = value
    try:
        return msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as error:
        raise invalid_json(error) from None


_array_limits_of: Callable[[Any], ArrayLimits] = functools.cache(ArrayLimits)


def decode_body(content: bytes, kind: type[B]) -> B:
    """A JSON body; Problem names the field that is wrong."""
    try:
        _array_limits_of(kind).check(content)
        return msgspec.json.decode(content, type=kind)
    except msgspec.DecodeError as error:
        raise invalid_json(error) from None
    except UnicodeDecodeError as error:
        raise not_utf_8(error) from None
    except RecursionError:
        raise invalid(None, "this JSON is nested too deeply") from None
