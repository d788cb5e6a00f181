"""A very small HTTP server: a few pages for monitoring, and batch commit.

GET (and HEAD) of a fixed set of paths, PUT below fixed prefixes, one request per connection, which is then
closed. Pages are functions that are called per request; what takes a PUT responds when it is done.
Everything is bounded: the size of a request's head and body, the number of connections, and how long one
may take.

    server    the server and its connections
    batches   PUT /v1/batches/<sink>/<batch>: commit the transactions of a batch

Left out: everything else. REST, WebSocket and the console will have a real HTTP server.
"""

from penstock.server.http.batches import BATCHES_PREFIX, BatchResource
from penstock.server.http.server import (
    NO_RESOURCES,
    HttpLimits,
    HttpRequest,
    HttpResponse,
    HttpServer,
    Page,
    Resource,
)

__all__ = [
    "BATCHES_PREFIX",
    "BatchResource",
    "NO_RESOURCES",
    "HttpLimits",
    "HttpRequest",
    "HttpResponse",
    "HttpServer",
    "Page",
    "Resource",
]
