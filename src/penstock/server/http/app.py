"""The ASGI application of a gateway: every route, its limits, and errors as problem+json.

`/api/v1/…` is the same as `/v1/…`.
"""

import re
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterable

from starlette.routing import BaseRoute, Route, Router, WebSocketRoute
from starlette.types import Message, Receive, Scope, Send

from penstock.client.cluster import ClusterError
from penstock.observability import log
from penstock.server.gateway.backend import GatewayBackend
from penstock.server.gateway.memory import MemoryShare, MemoryUsedUp
from penstock.server.http.body import ClientGone
from penstock.server.http.openapi import openapi_routes
from penstock.server.http.operations import (
    ESCAPED,
    MEMORY,
    Operation,
    OperationTable,
    PathEndpoint,
    escaped_path,
    problem_response,
)
from penstock.server.http.problem import Problem, failed, no_memory
from penstock.server.http.routes import FAMILIES
from penstock.server.http.routes.publish import publish, publish_soon
from penstock.server.http.websocket import PATH, WebSocketEndpoint

ALIAS = "/api/v1/"
# A slash in a name, as it stands in a path.
SLASH = b"%2F"
# Behind it stands the id of a message, whose own slashes may be written so.
MESSAGES = b"/v1/messages/"
# Who watches a node must see that it is busy, not that it is dead: these are served beside the limit.
WATCHED = frozenset({"/health", "/ready", "/metrics", "/v1/admin/health", "/v1/admin/metrics"})
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

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raw_path: bytes = scope.get("raw_path") or b""
        has_slash = SLASH in raw_path or SLASH.lower() in raw_path
        if has_slash and MESSAGES not in raw_path:
            scope["path"] = escaped_path(raw_path)
            scope[ESCAPED] = True
        path: str = scope["path"]
        if path.startswith(ALIAS):
            scope["path"] = path[len("/api") :]
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
        if self._backend.memory.is_used_up:
            await problem_response(no_memory(self._backend.memory.refusal()))(scope, receive, send)
            return
        self._requests += 1
        try:
            await self._serve(scope, receive, send)
        finally:
            self._requests -= 1

    def serve_soon(self, url: bytes, content: bytes, respond: Callable[[int, bytes], None]) -> bool:
        """Serve a publish without a task of its own; False if it must be served as any other request is."""
        limits = self._backend.limits
        if self._requests >= limits.requests_max or len(content) > limits.body_bytes_max:
            return False
        found = PLAIN_PUBLISH.fullmatch(url)
        memory, size = self._backend.memory, len(content)
        if found is None or not memory.has_room(size):
            return False

        def responded(status: int, body: bytes) -> None:
            self._requests -= 1
            memory.give_back(size)
            respond(status, body)

        is_served = publish_soon(self._backend, found[1].decode(), content, responded)
        if is_served:
            self._requests += 1
            memory.add(size)
        return is_served

    async def _dispatch(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        if path.endswith(PUBLISH) and path.startswith(TOPICS) and scope["method"] == "POST":
            topic = path[len(TOPICS) : -len(PUBLISH)]
            if topic and "/" not in topic:
                # What is called most often is found without a search.
                scope["path_params"] = {"topic": topic}
                await publish(self._backend, scope, receive, send)
                return
        await self._router(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
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
            await self._dispatch(scope, receive, watched)
            return
        except MemoryUsedUp as error:
            response = problem_response(no_memory(error))
        except Problem as problem:
            response = problem_response(problem)
        except ClusterError as error:
            response = problem_response(failed(error.code, error.detail))
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


async def _no_such_path(scope: Scope, receive: Receive, send: Send) -> None:
    detail = f"there is no {scope['path']}; /docs lists what there is"
    await problem_response(Problem(404, "Not found", detail))(scope, receive, send)
