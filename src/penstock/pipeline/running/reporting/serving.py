"""A small HTTP server with one page: the figures of the run."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from penstock.observability import Metrics, render
from penstock.pipeline.errors import BadOption

PATHS = ("/metrics", "/")


@contextmanager
def serve_metrics(address: str, metrics: Metrics) -> Iterator[str]:
    """Serve while the context lasts; answers the address, with the port where 0 was asked for."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.partition("?")[0] not in PATHS:
                self.send_error(404)
                return
            body = render([metrics])
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the parent's
            """Scrapes are not worth a line."""

    host, port = parse_address(address)
    try:
        server = ThreadingHTTPServer((host, port), Page)
    except OSError as error:
        raise BadOption("metrics", f"{address} cannot be listened on: {error.strerror or error}") from None
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    try:
        yield f"{host or '0.0.0.0'}:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def parse_address(address: str) -> tuple[str, int]:
    """`host:port`; `:9090` means every interface."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise BadOption("metrics", f"not a host:port: {address!r}")
    return host.strip("[]"), int(port)
