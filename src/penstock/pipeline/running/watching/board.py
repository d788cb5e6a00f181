"""How a run stands: each query's last batch and its sums, kept by one thread and shown by others."""

import enum
import threading
from dataclasses import dataclass, field, replace

from penstock.pipeline.running.watching.progress import Positions, Progress


class State(enum.StrEnum):
    """Of a query, and of a run."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class QueryView:
    """One query as it stands."""

    name: str
    id: str
    state: State = State.RUNNING
    batch: int | None = None
    rows: int = 0
    rows_per_second: float = 0.0
    batch_seconds: float = 0.0
    lag_records: int | None = None
    lag_seconds: float | None = None
    watermark: str | None = None
    rows_dropped_late: int = 0
    duplicates_dropped: int = 0
    error: str | None = None
    positions: Positions = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunView:
    """The whole run as it stands."""

    name: str
    state: State
    queries: tuple[QueryView, ...] = ()
    error: str | None = None


class Board:
    """Takes what happens, from any thread; answers how things stand."""

    def __init__(self, name: str) -> None:
        self._lock = threading.Lock()
        self._queries: dict[str, QueryView] = {}
        self._run = RunView(name, State.STARTING)

    def view(self) -> RunView:
        with self._lock:
            return replace(self._run, queries=tuple(self._queries.values()))

    def running(self) -> None:
        self._end(State.RUNNING, None)

    def stopped(self) -> None:
        self._end(State.STOPPED, None)

    def failed(self, error: str) -> None:
        self._end(State.FAILED, error)

    def query_started(self, name: str, query_id: str) -> None:
        with self._lock:
            self._queries.setdefault(name, QueryView(name, query_id))

    def progressed(self, progress: Progress) -> None:
        """Count a batch; Spark reports each one once."""
        with self._lock:
            before = self._queries.get(progress.query) or QueryView(progress.query, progress.query_id)
            self._queries[progress.query] = replace(
                before,
                batch=progress.batch,
                rows=before.rows + progress.rows,
                # A batch without rows moves the watermark on; the rate of the last work stays worth seeing.
                rows_per_second=progress.rows_per_second if progress.rows else before.rows_per_second,
                batch_seconds=progress.batch_seconds,
                lag_records=progress.lag_records,
                lag_seconds=0.0 if progress.lag_records == 0 else before.lag_seconds,
                watermark=progress.watermark or before.watermark,
                rows_dropped_late=before.rows_dropped_late + progress.rows_dropped_late,
                duplicates_dropped=before.duplicates_dropped + progress.duplicates_dropped,
                positions=dict(progress.positions) or before.positions,
            )

    def lag_seen(self, name: str, records: int, seconds: float | None) -> None:
        """Somebody asked the broker, which knows of records that came after the last batch began."""
        with self._lock:
            if (before := self._queries.get(name)) is not None:
                self._queries[name] = replace(before, lag_records=records, lag_seconds=seconds)

    def query_ended(self, name: str, error: str | None) -> None:
        with self._lock:
            if (before := self._queries.get(name)) is not None:
                state = State.STOPPED if error is None else State.FAILED
                self._queries[name] = replace(before, state=state, error=error)

    def _end(self, state: State, error: str | None) -> None:
        with self._lock:
            self._run = replace(self._run, state=state, error=error)
