"""A very small HTTP server: a few pages for monitoring.

GET (and HEAD) of a fixed set of paths, one request per connection, which is then closed.
Pages are functions that are called per request. Everything is bounded: the size of a
request's head, the number of connections, and how long one may take.

Left out: everything else. REST, WebSocket and the console will have a real HTTP server.
"""

from penstock.server.http.server import HttpLimits, HttpResponse, HttpServer, Page

__all__ = ["HttpServer", "HttpLimits", "HttpResponse", "Page"]
