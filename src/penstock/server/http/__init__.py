"""A very small HTTP door: a few pages that monitoring asks for.

GET (and HEAD) of a fixed set of paths, one request per connection, answered and closed.
Pages are functions that are called when somebody asks. Everything is bounded: the size of
a request's head, the number of connections, and how long one may take.

Left out: everything else. REST, WebSocket and the console will have a real HTTP server.
"""

from penstock.server.http.server import HttpLimits, HttpResponse, HttpServer, Page

__all__ = ["HttpServer", "HttpLimits", "HttpResponse", "Page"]
