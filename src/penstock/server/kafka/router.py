"""Which handler serves which API and versions.

A handler is a function, or a generator that yields after every row: one whose work grows with the
request. It is served in slices then, as far as it does not end in the first one. A large request is
decoded in steps, whatever its handler is.
"""

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, TypeVar

from penstock.core.protocol import TooManyEntries
from penstock.core.protocol.codec import Message, decoder_in_steps, decoders
from penstock.core.protocol.messages.registry import APIS, Api
from penstock.server.kafka.request import Request
from penstock.server.kafka.request_limits import WHOLE_BYTES_MAX, RequestLimit, limit_of

M = TypeVar("M", bound=Message)
# Serves one request whose message starts at a position of its frame.
Serve: TypeAlias = Callable[[Request, memoryview, int], None]
# None, or the steps of a handler that is a generator.
Handler: TypeAlias = Callable[[M, Request], Iterator[None] | None]


@dataclass(frozen=True, slots=True)
class Route:
    """One API as this node serves it, in every version the table has."""

    api: Api
    serve: Serve
    bytes_max: int

    @property
    def versions(self) -> range:
        return self.api.versions


class Router:
    """The table that handlers register in. `ApiVersions` is derived from it."""

    def __init__(self) -> None:
        self.by_key: dict[int, Route] = {}
        # Modules that were announced and not loaded, and what they have registered meanwhile, by API key.
        self._announced: dict[int, str] = {}
        self._registered: dict[int, Route] = {}

    def announce(self, api: Api, module: str) -> None:
        """Serve an API by a module that registers its handler; it is imported with the first request."""
        if api.key not in self.by_key:
            self._announced[api.key] = module
            serve = partial(self._serve_first, api.key)
            self.by_key[api.key] = Route(api, serve, limit_of(api).bytes_max)

    def load(self) -> None:
        """Import every handler that was announced; may run in a thread while requests are served."""
        for key in list(self._announced):
            self._load(key)

    def _serve_first(self, key: int, call: Request, frame: memoryview, position: int) -> None:
        self._load(key)
        self.by_key[key].serve(call, frame, position)

    def _load(self, key: int) -> None:
        module = self._announced.get(key)
        if module is None:
            return
        importlib.import_module(module)
        # Not when it registers: what stands below its handler in the module does not exist then.
        self.by_key[key] = self._registered[key]
        self._announced.pop(key, None)

    def all(self) -> list[Route]:
        return [self.by_key[key] for key in sorted(self.by_key)]

    def handles(self, request: type[M], *, is_long_poll: bool = False) -> Callable[[Handler[M]], Handler[M]]:
        """Register the decorated function, or generator, for an API.

        `is_long_poll`: its responses may wait for other clients, so that this one may go on meanwhile.
        """
        api = _api_of(request)
        limit = limit_of(api)

        def register(handler: Handler[M]) -> Handler[M]:
            decode = decoders(request)

            def serve(call: Request, frame: memoryview, position: int) -> None:
                if len(frame) - position > WHOLE_BYTES_MAX:
                    steps = _large(handler, request, limit, call, call.connection.keep(frame), position)
                    call.run(steps, frame_bytes=len(frame), is_large=True, is_long_poll=is_long_poll)
                    return
                # Bytes after the message are let through, as Kafka does: librdkafka 2.x sends three
                # too many when it asks for every topic (Metadata 9 and later).
                message = decode[call.version](frame, position)[0]
                audit = call.connection.audit
                if audit is not None:
                    audit.asked(call, message)
                more = handler(message, call)
                if more is not None:
                    call.run(more, is_long_poll=is_long_poll)

            self._add(Route(api, serve, limit.bytes_max))
            return handler

        return register

    def handles_frames(self, request: type[Message]) -> Callable[[Serve], Serve]:
        """Register a function that reads the frame itself: for the hot path."""
        api = _api_of(request)

        def register(serve: Serve) -> Serve:
            self._add(Route(api, serve, limit_of(api).bytes_max))
            return serve

        return register

    def _add(self, route: Route) -> None:
        table = self._registered if route.api.key in self._announced else self.by_key
        assert route.api.key not in table, f"{route.api.name} has two handlers"
        table[route.api.key] = route


def _large(
    handler: Handler[M],
    request: type[M],
    limit: RequestLimit,
    call: Request,
    frame: memoryview,
    position: int,
) -> Iterator[None]:
    """Decode a large request, and serve it, in steps."""
    try:
        decode = decoder_in_steps(request, call.version)
        message, _ = yield from decode(frame, position, limit.entries_max)
    except TooManyEntries:
        call.refuse(f"it has more than {limit.entries_max:,} entries")
        return
    audit = call.connection.audit
    if audit is not None:
        audit.asked(call, message)
    steps = handler(message, call)
    if steps is not None:
        yield from steps


def _api_of(request: type[Message]) -> Api:
    schema: Any = request.__schema__
    return APIS[schema.api_key]


routes = Router()
