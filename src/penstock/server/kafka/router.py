"""Which handler serves which API and versions."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from penstock.core.protocol.codec import Message, decoders
from penstock.core.protocol.messages.registry import APIS, Api
from penstock.server.kafka.request import Request

M = TypeVar("M", bound=Message)
# Serves one request whose message starts at a position of its frame.
Serve: TypeAlias = Callable[[Request, memoryview, int], None]


@dataclass(frozen=True, slots=True)
class Route:
    """One API as this node serves it."""

    api: Api
    versions: range
    serve: Serve


class Router:
    """The table that handlers register in. `ApiVersions` is derived from it."""

    def __init__(self) -> None:
        self.by_key: dict[int, Route] = {}

    def all(self) -> list[Route]:
        return [self.by_key[key] for key in sorted(self.by_key)]

    def handles(
        self, request: type[M], versions: range | None = None
    ) -> Callable[[Callable[[M, Request], None]], Callable[[M, Request], None]]:
        """Register the decorated function for an API: in every version the table has, or in these."""
        api = _api_of(request)

        def register(handler: Callable[[M, Request], None]) -> Callable[[M, Request], None]:
            decode = decoders(request)

            def serve(call: Request, frame: memoryview, position: int) -> None:
                # Bytes after the message are let through, as Kafka does: librdkafka 2.x sends three
                # too many when it asks for every topic (Metadata 9 and later).
                handler(decode[call.version](frame, position)[0], call)

            self._add(Route(api, versions or api.versions, serve))
            return handler

        return register

    def handles_frames(
        self, request: type[Message], versions: range | None = None
    ) -> Callable[[Serve], Serve]:
        """Register a function that reads the frame itself: for the hot path."""
        api = _api_of(request)

        def register(serve: Serve) -> Serve:
            self._add(Route(api, versions or api.versions, serve))
            return serve

        return register

    def _add(self, route: Route) -> None:
        assert route.api.key not in self.by_key, f"{route.api.name} has two handlers"
        self.by_key[route.api.key] = route


def _api_of(request: type[Message]) -> Api:
    schema: Any = request.__schema__
    return APIS[schema.api_key]


routes = Router()
