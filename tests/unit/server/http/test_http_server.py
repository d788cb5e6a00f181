"""The pages of a node: one that takes long is named."""

from types import SimpleNamespace
from typing import cast

from penstock.core.model import MILLISECOND, Instant
from penstock.runtime import Runtime
from penstock.server.http.server import HttpResponse, HttpServer
from tests.support.recorded_events import recorded_events


class Clock:
    """Time passes only when a page is made."""

    def __init__(self) -> None:
        self.now_ns = 0

    def now(self) -> Instant:
        return Instant(self.now_ns)

    def page(self) -> HttpResponse:
        self.now_ns += 70 * MILLISECOND
        return HttpResponse(200, b"done")


def test_a_page_that_held_the_loop_is_named() -> None:
    clock = Clock()
    runtime = cast("Runtime", SimpleNamespace(clock=clock, timers=None))
    server = HttpServer(runtime, {"/slow": clock.page, "/fast": lambda: HttpResponse(200, b"")})

    with recorded_events() as events:
        server.respond(b"GET /fast HTTP/1.1\r\n")
        server.respond(b"GET /slow?query HTTP/1.1\r\n")

    (event,) = events.named("node.held_the_loop")
    assert (event["what"], event["ms"]) == ("/slow", 70)
