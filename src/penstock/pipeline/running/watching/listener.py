"""Spark's events, taken to the board and to whoever else counts batches."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from penstock.pipeline.running.failures import reason
from penstock.pipeline.running.watching.board import Board
from penstock.pipeline.running.watching.progress import Progress, parse_progress

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryListener

Taker = Callable[[Progress], None]


def board_listener(board: Board, takers: Sequence[Taker]) -> "StreamingQueryListener":
    """A listener for `spark.streams.addListener`; Spark calls it from a thread of its own, in order."""
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
        StreamingQueryListener,
    )

    class BoardListener(StreamingQueryListener):
        def __init__(self) -> None:
            self._names: dict[str, str] = {}

        def onQueryStarted(self, event: QueryStartedEvent) -> None:
            name = event.name or str(event.id)
            self._names[str(event.id)] = name
            board.query_started(name, str(event.id))

        def onQueryProgress(self, event: QueryProgressEvent) -> None:
            progress = parse_progress(event.progress.json)
            board.progressed(progress)
            for take in takers:
                take(progress)

        def onQueryIdle(self, event: QueryIdleEvent) -> None:
            """Nothing came; the lag is asked for elsewhere."""

        def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
            name = self._names.get(str(event.id), str(event.id))
            board.query_ended(name, None if event.exception is None else reason(event.exception))

    return BoardListener()
