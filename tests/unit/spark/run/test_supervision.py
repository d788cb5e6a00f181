from pathlib import Path
from typing import Any

import pytest

from penstock.spark.run.failures import RunFailed
from penstock.spark.run.launch import QuerySupervisor, StopSignals
from penstock.spark.run.progress import BatchProgress, RunMonitor


class Query:
    """What Supervision asks of a query of Spark's; this one says at its end what it dropped."""

    def __init__(self, name: str, board: RunMonitor, dropped: int, is_endless: bool) -> None:
        self.name, self.isActive = name, is_endless
        self._board, self._dropped = board, dropped
        board.query_started(name, name)
        if is_endless:
            self._tell()

    def exception(self) -> None:
        return None

    def stop(self) -> None:
        # Spark tells of the last batch after the query has ended.
        if not self.isActive:
            self._tell()
        self._board.query_ended(self.name, None)

    def _tell(self) -> None:
        self._board.progressed(BatchProgress(self.name, self.name, 7, rows_dropped_late=self._dropped))


def supervise(board: RunMonitor, *queries: Any, once: bool) -> None:
    supervision = QuerySupervisor(board, StopSignals(), lambda: None, Path("spark.log"), {"exact": "do this"})
    supervision.supervise(queries, once)


@pytest.mark.parametrize("once", [True, False])
def test_a_run_fails_when_a_query_drops_rows_that_must_drop_none(once: bool) -> None:
    board = RunMonitor("run")

    with pytest.raises(RunFailed) as failed:
        supervise(board, Query("exact", board, 3, is_endless=not once), once=once)

    assert str(failed.value) == (
        "query exact: 3 rows came too late and were dropped, so what it wrote is not complete:"
        " do this (more in spark.log)"
    )


def test_other_queries_may_drop_what_is_late() -> None:
    board = RunMonitor("run")

    supervise(board, Query("other", board, 3, is_endless=False), once=True)

    assert [query.rows_dropped_late for query in board.view().queries] == [3]
