"""HTTP: the node's own pages, and REST and WebSocket in the gateway process.

In the node, on its loop, a very small server: GET (and HEAD) of a fixed set of paths, PUT below fixed
prefixes, one request per connection. Everything is bounded: the size of a request's head and body, the
number of connections, and how long one may take.

    server    the server and its connections
    batches   PUT /v1/batches/<sink>/<batch>: commit the transactions of a batch

In the gateway, which passes those pages on (nothing of this is imported by the node):

    rest_server   uvicorn's connections on a socket that listens, with limits
    app           every route, requests at a time, errors
    operations    how a route is declared: the structs of its query, body and answer
    openapi       the document made of them; docs_page   the page to try it
    problem       errors as problem+json; body   bodies, bounded in size and time
    message_json  messages as JSON and as records
    routes/       one module per family
"""

from penstock.server.http.batches import BATCHES_PREFIX, BatchResource
from penstock.server.http.server import (
    NO_RESOURCES,
    PRIVATE_PREFIX,
    HttpCaller,
    HttpGate,
    HttpHeaders,
    HttpLimits,
    HttpRequest,
    HttpResponse,
    HttpServer,
    LateResponse,
    Page,
    Resource,
)

__all__ = [
    "BATCHES_PREFIX",
    "BatchResource",
    "NO_RESOURCES",
    "PRIVATE_PREFIX",
    "HttpCaller",
    "HttpGate",
    "HttpHeaders",
    "HttpLimits",
    "HttpRequest",
    "HttpResponse",
    "HttpServer",
    "LateResponse",
    "Page",
    "Resource",
]
