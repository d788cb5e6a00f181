"""Asking the broker, now and then, how far behind the queries are.

Spark says so only when a batch ends. A query that is stuck, or in a batch that takes minutes,
falls behind all the same, and that is when somebody looks.
"""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from penstock.client import Endpoint
from penstock.client.groups import consumer_lag
from penstock.core.model import PenstockError
from penstock.pipeline.running.watching.board import Board, State

EVERY_SECONDS = 5.0


@contextmanager
def lag_watched(board: Board, connection: Mapping[str, str]) -> Iterator[None]:
    """Keep the board's lag fresh while the context lasts."""
    done = threading.Event()

    def watch() -> None:
        while not done.wait(EVERY_SECONDS):
            look_once(board, endpoint)

    options = dict(connection)
    endpoint = Endpoint(options.pop("bootstrap.servers"), options)
    thread = threading.Thread(target=watch, name="lag", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        # A broker that does not answer keeps it for a while, which is no reason to wait.
        thread.join(1.0)


def look_once(board: Board, endpoint: Endpoint) -> None:
    for query in board.view().queries:
        if query.state is not State.RUNNING or not query.positions:
            continue
        try:
            behind = consumer_lag(endpoint, query.positions)
        except PenstockError:
            continue  # a broker that is away; what Spark said last stands
        if behind is not None:
            board.lag_seen(query.name, behind.records, behind.seconds)
