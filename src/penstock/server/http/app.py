"""The ASGI application of a gateway: every route, its limits, and errors as problem+json.

`/api/v1/…` is the same as `/v1/…`.

Where callers must say who they are, that is found out before anything of a request is read but its head; it
is then served by the caller's own way to the cluster.
"""

import re
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterable

import msgspec
from starlette.routing import BaseRoute, Route, Router, WebSocketRoute
from starlette.types import Message, Receive, Scope, Send

from penstock.client.cluster import ClusterError, QuotaExceeded
from penstock.observability import log
from penstock.security.sessions import CallerProtocol
from penstock.server.gateway.backend import GatewayBackend
from penstock.server.gateway.callers import Caller, Callers, UnknownCaller, credentials_of
from penstock.server.gateway.memory import MemoryShare, MemoryUsedUp
from penstock.server.gateway.permissions import OPEN, REST
from penstock.server.http.address_places import AddressPlaces, network_in
from penstock.server.http.body import ClientGone
from penstock.server.http.openapi import openapi_routes
from penstock.server.http.operations import (
    CALLER,
    ESCAPED,
    MEMORY,
    Operation,
    OperationTable,
    PathEndpoint,
    backend_of,
    escaped_path,
    problem_response,
)
from penstock.server.http.problem import Problem, failed, no_memory, not_identified, problem_body
from penstock.server.http.rest_server import CERTIFICATE, SoonOrigin
from penstock.server.http.routes import FAMILIES
from penstock.server.http.routes.publish import publish, publish_soon
from penstock.server.http.security_headers import CHALLENGE
from penstock.server.http.websocket import PATH, WebSocketEndpoint

ALIAS = "/api/v1/"
OK, UNAUTHORIZED = 200, 401
# A slash in a name, as it stands in a path.
SLASH = b"%2F"
# Behind it stands the id of a message, whose own slashes may be written so.
MESSAGES = b"/v1/messages/"
# Who watches a node must see that it is busy, not that it is dead: these are served beside the limit.
WATCHED = frozenset({"/health", "/ready", "/metrics", "/v1/admin/health", "/v1/admin/metrics"})
# What is open to everyone, whoever they are.
OPEN_PATHS = frozenset(path for (_, path), needs in REST.items() if needs == OPEN)
# By which callers say who they are, if not by a certificate.
NAMING_HEADERS = (b"authorization", b"x-api-key")
# What browsers say of the page that a request is for; "none" is an address that somebody has typed.
FETCH_SITE, OWN_SITES = b"sec-fetch-site", (b"same-origin", b"none")
TOPICS, PUBLISH = "/v1/topics/", "/publish"
PLAIN_PUBLISH = re.compile(rb"/v1/topics/([a-zA-Z0-9._-]+)/publish")


def rest_app(backend: GatewayBackend) -> "RestApp":
    """The application that a gateway serves."""
    sockets = WebSocketRoute(PATH, WebSocketEndpoint(backend))
    return RestApp(backend, [*_routes(backend, FAMILIES), *openapi_routes(FAMILIES), sockets])


def _routes(backend: GatewayBackend, families: Iterable[OperationTable]) -> list[BaseRoute]:
    by_path: dict[str, dict[str, Operation]] = defaultdict(dict)
    for family in families:
        for operation in family:
            assert operation.method not in by_path[operation.path], operation.path
            by_path[operation.path][operation.method] = operation
    return [Route(path, PathEndpoint(backend, methods)) for path, methods in by_path.items()]


class RestApp:
    """Finds the endpoint of each request."""

    def __init__(self, backend: GatewayBackend, routes: list[BaseRoute]) -> None:
        self._backend = backend
        self._router = Router(routes, redirect_slashes=False, default=_no_such_path)
        self._requests = 0
        self._of_addresses = AddressPlaces(backend.limits.address_share(backend.limits.requests_max))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raw_path: bytes = scope.get("raw_path") or b""
        has_slash = SLASH in raw_path or SLASH.lower() in raw_path
        if has_slash and MESSAGES not in raw_path:
            scope["path"] = escaped_path(raw_path)
            scope[ESCAPED] = True
        path: str = scope["path"]
        if path.startswith(ALIAS):
            scope["path"] = path[len("/api") :]
        callers = self._backend.callers
        is_open = scope["path"] in OPEN_PATHS and scope["type"] == "http"
        if callers is None or (is_open and not _is_named(scope)):
            await self._admitted(scope, receive, send)
            return
        try:
            caller = await self._identify(callers, scope)
        except (Problem, ClusterError) as error:
            if is_open:
                await self._admitted(scope, receive, send)
            else:
                await _refuse(error, scope, receive, send)
            return
        scope[CALLER] = caller
        caller.uses += 1
        try:
            await self._admitted(scope, receive, send)
        finally:
            caller.uses -= 1
            caller.used_at = self._backend.now()

    async def _identify(self, callers: Callers, scope: Scope) -> Caller:
        """Who is calling; Problem if it is nobody, or a page of another site on behalf of somebody."""
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        if _is_of_another_site(headers):
            detail = "requests of pages of other sites are not served"
            raise Problem(403, "Not allowed", detail)
        certificate = scope.get("state", {}).get(CERTIFICATE)
        try:
            host, protocol = scope["client"][0], _protocol(scope)
            return await callers.identify(credentials_of(headers, host, certificate, protocol))
        except UnknownCaller:
            raise not_identified() from None

    async def _admitted(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._router(scope, receive, send)
            return
        if scope["path"] in WATCHED:
            await self._serve(scope, receive, send)
            return
        if self._requests >= self._backend.limits.requests_max:
            detail = f"{self._requests} requests are under way (rest.requests_max)"
            await problem_response(Problem(503, "Too many requests at once", detail))(scope, receive, send)
            return
        network = network_in(scope.get("state", {}))
        if not self._of_addresses.has_room(network):
            detail = f"{self._of_addresses.places_max} requests of your address are under way"
            await problem_response(Problem(503, "Too many requests at once", detail))(scope, receive, send)
            return
        if self._backend.memory.is_used_up:
            await problem_response(no_memory(self._backend.memory.refusal()))(scope, receive, send)
            return
        self._requests += 1
        self._of_addresses.take(network)
        try:
            await self._serve(scope, receive, send)
        finally:
            self._requests -= 1
            self._of_addresses.give_back(network)

    def serve_soon(
        self, url: bytes, content: bytes, respond: Callable[[int, bytes], None], origin: SoonOrigin
    ) -> bool:
        """Serve a publish without a task of its own; False if it must be served as any other request is."""
        backend = self._backend
        caller: Caller | None = None
        if backend.callers is not None:
            caller = self._known_caller(backend.callers, origin)
            if caller is None:
                return False
            backend = caller.backend
        if backend.is_throttled:
            return False
        limits = self._backend.limits
        if self._requests >= limits.requests_max or len(content) > limits.body_bytes_max:
            return False
        found = PLAIN_PUBLISH.fullmatch(url)
        memory, size = self._backend.memory, len(content)
        network = network_in(origin.app_state)
        if found is None or not memory.has_room(size) or not self._of_addresses.has_room(network):
            return False

        def responded(status: int, body: bytes) -> None:
            self._requests -= 1
            self._of_addresses.give_back(network)
            memory.give_back(size)
            respond(*_as_seen_by(caller, status, body))

        is_served = publish_soon(backend, found[1].decode(), content, responded)
        if is_served:
            self._requests += 1
            self._of_addresses.take(network)
            memory.add(size)
        return is_served

    def _known_caller(self, callers: Callers, origin: SoonOrigin) -> Caller | None:
        if origin.client is None or _is_of_another_site(origin.headers):
            return None
        certificate = origin.app_state.get(CERTIFICATE)
        try:
            return callers.find(credentials_of(origin.headers, origin.client[0], certificate))
        except UnknownCaller:
            return None

    async def _dispatch(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        if path.endswith(PUBLISH) and path.startswith(TOPICS) and scope["method"] == "POST":
            topic = path[len(TOPICS) : -len(PUBLISH)]
            if topic and "/" not in topic:
                # What is called most often is found without a search.
                scope["path_params"] = {"topic": topic}
                await publish(backend_of(scope, self._backend), scope, receive, send)
                return
        await self._router(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: C901 - one per error
        has_begun = False
        memory = scope[MEMORY] = MemoryShare(self._backend.memory)

        async def watched(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            size = len(message.get("body", b""))
            memory.add(size)
            await send(message)
            memory.give_back(size)

        try:
            if scope["path"] not in WATCHED:
                backend_of(scope, self._backend).check_quota()
            await self._dispatch(scope, receive, watched)
            return
        except QuotaExceeded as error:
            response = problem_response(failed(error.code, error.detail), {"retry-after": str(error.seconds)})
        except MemoryUsedUp as error:
            response = problem_response(no_memory(error))
        except (Problem, ClusterError) as error:
            problem = error if isinstance(error, Problem) else failed(error.code, error.detail)
            if _has_ended(scope):
                # Its connections were closed in the middle of this.
                problem = not_identified()
            response = problem_response(problem)
            await self._end_if_refused(scope, problem.status)
        except ClientGone:
            return
        except Exception as error:
            log.error(
                "rest.request_failed",
                path=scope["path"],
                method=scope["method"],
                reason=repr(error),
                traceback="".join(traceback.format_exception(error)),
            )
            detail = "the gateway failed at this request; its log says why"
            response = problem_response(Problem(500, "Internal error", detail))
        finally:
            memory.end()
        # What has begun cannot become an error: uvicorn closes the connection of an incomplete response.
        if not has_begun:
            await response(scope, receive, send)

    async def _end_if_refused(self, scope: Scope, status: int) -> None:
        """A caller that a broker does not believe any more has to say again who it is."""
        callers, caller = self._backend.callers, scope.get(CALLER)
        if status == UNAUTHORIZED and callers is not None and caller is not None:
            await callers.refused(caller)


def _is_named(scope: Scope) -> bool:
    """Whether a request says who is calling, rightly or not."""
    has_certificate = scope.get("state", {}).get(CERTIFICATE) is not None
    return has_certificate or any(name in NAMING_HEADERS for name, _ in scope["headers"])


def _protocol(scope: Scope) -> CallerProtocol:
    return "REST" if scope["type"] == "http" else "WebSocket"


def _has_ended(scope: Scope) -> bool:
    """Whether whoever made the request is nobody any more."""
    caller: Caller | None = scope.get(CALLER)
    return caller is not None and caller.ended.is_set()


def _as_seen_by(caller: Caller | None, status: int, body: bytes) -> tuple[int, bytes]:
    """What is responded: the connections of a caller that is nobody any more were closed in the middle."""
    if status == OK or caller is None or not caller.ended.is_set():
        return status, body
    nobody = not_identified()
    return nobody.status, msgspec.json.encode(nobody.body)


def _is_of_another_site(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether a browser sends this for a page that we did not serve: it may add credentials by itself.

    It names the origin with whatever may change something by HTTP's rules, and the site with a GET as well.
    """
    origin = host = None
    for name, value in headers:
        if name == b"origin":
            origin = value
        elif name == b"host":
            host = value
        elif name == FETCH_SITE and value not in OWN_SITES:
            return True
    return origin is not None and origin.partition(b"://")[2] != host


async def _refuse(error: Problem | ClusterError, scope: Scope, receive: Receive, send: Send) -> None:
    """Respond to a caller that is not served."""
    problem = error if isinstance(error, Problem) else failed(error.code, error.detail)
    if scope["type"] == "http":
        await problem_response(problem)(scope, receive, send)
        return
    # The handshake of a WebSocket is a request as any other.
    await receive()
    body = problem_body(problem.status, problem.body.title, problem.body.detail)
    headers = [(b"content-type", b"application/problem+json"), (b"content-length", b"%d" % len(body))]
    if problem.status == UNAUTHORIZED:
        headers.append((b"www-authenticate", CHALLENGE.encode()))
    start = {"type": "websocket.http.response.start", "status": problem.status, "headers": headers}
    await send(start)
    await send({"type": "websocket.http.response.body", "body": body})


async def _no_such_path(scope: Scope, receive: Receive, send: Send) -> None:
    detail = f"there is no {scope['path']}; /docs lists what there is"
    await problem_response(Problem(404, "Not found", detail))(scope, receive, send)
