"""Following the queries until they end, and stopping them in order."""

import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.core.model import SECOND
from penstock.pipeline.running.failures import RunFailed, in_one_line, why
from penstock.pipeline.running.stopping import StopSignals
from penstock.pipeline.running.watching import Board, State
from penstock.runtime.loop import MachineClock

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

TURN_SECONDS = 0.25
PAUSE_SECONDS = 0.05
# A batch that ends within this time is waited for: stopping in the middle loses nothing but its work.
GRACE_SECONDS = 5
# The listener hears of the end a moment after the query does.
LAST_EVENT_SECONDS = 5


@dataclass(frozen=True, slots=True)
class Supervision:
    """Looks after queries, a few times a second.

    `drops_nothing` names the queries that must not drop rows as too late, and what to do if one does.
    """

    board: Board
    stop: StopSignals
    report: Callable[[], None]
    log: Path
    drops_nothing: Mapping[str, str] = field(default_factory=dict)

    def supervise(self, queries: Iterable["StreamingQuery"], once: bool) -> None:
        """Follow all of them together, or with `once` one after the other; raises `RunFailed`."""
        if not once:
            self._follow(list(queries), until_ended=False)
            return
        for query in queries:
            self._follow([query], until_ended=True)
            if self.stop.asked:
                return

    def _follow(self, queries: list["StreamingQuery"], until_ended: bool) -> None:
        try:
            while not self.stop.wait(TURN_SECONDS):
                self.report()
                self._refuse_dropped()
                ended = [query for query in queries if not query.isActive]
                for query in ended:
                    self._check(query, until_ended)
                if len(ended) == len(queries):
                    break
            else:
                self._let_batches_end(queries)
        finally:
            with suppress(RunFailed), in_one_line("stopping", self.log):
                for query in queries:
                    query.stop()
                self._await_last_events()
        # The last batch of a query is told after its end.
        self._refuse_dropped()

    def _check(self, query: "StreamingQuery", may_end: bool) -> None:
        error = query.exception()
        if error is not None:
            raise RunFailed(f"query {query.name} failed: {why(error)} (more in {self.log})")
        if not may_end:
            raise RunFailed(f"query {query.name} ended by itself (more in {self.log})")

    def _refuse_dropped(self) -> None:
        for query in self.board.view().queries:
            if query.rows_dropped_late and query.name in self.drops_nothing:
                raise RunFailed(
                    f"query {query.name}: {query.rows_dropped_late} rows came too late and were dropped, so"
                    f" what it wrote is not complete: {self.drops_nothing[query.name]} (more in {self.log})"
                )

    def _let_batches_end(self, queries: list["StreamingQuery"]) -> None:
        """Wait until each query is between two batches, or has finished the one it was in."""
        deadline = MachineClock().now() + GRACE_SECONDS * SECOND
        before = self._batches()
        for query in queries:
            while query.isActive and query.status["isTriggerActive"] and MachineClock().now() < deadline:
                if self._batches().get(query.name) != before.get(query.name):
                    break
                _pause()

    def _await_last_events(self) -> None:
        deadline = MachineClock().now() + LAST_EVENT_SECONDS * SECOND
        while MachineClock().now() < deadline:
            if all(query.state is not State.RUNNING for query in self.board.view().queries):
                return
            _pause()

    def _batches(self) -> dict[str | None, int | None]:
        return {query.name: query.batch for query in self.board.view().queries}


def _pause() -> None:
    threading.Event().wait(PAUSE_SECONDS)
