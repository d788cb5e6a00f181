"""What the queries do, gathered in one place.

    Spark ──> listener ──> BatchProgress ──> RunMonitor ──> display, status file, metrics
                                                 ^
              broker ──> lag ────────────────────┘

Spark calls the listener when a batch ends. The broker is asked every few seconds how far behind
the queries are: a query that is stuck, or in a batch that takes minutes, falls behind without
an event from Spark, and that is when somebody looks.

Left out: tasks and stages. Spark's own web page has them (`--conf spark.ui.enabled=true`).
"""

import enum
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from penstock.client import Endpoint
from penstock.client.groups import consumer_lag
from penstock.core.model import PenstockError
from penstock.spark.run.failures import reason

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryListener

Positions = Mapping[tuple[str, int], int]
EVERY_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """One batch of one query."""

    query: str
    query_id: str
    batch: int
    rows: int = 0
    rows_per_second: float = 0.0
    batch_seconds: float = 0.0
    watermark: str | None = None
    rows_dropped_late: int = 0
    duplicates_dropped: int = 0
    lag_records: int | None = None
    # Of the topics that are read: the offset after the last record that the batch covers.
    positions: Positions = field(default_factory=dict)


def parse_progress(text: str) -> BatchProgress:
    """Read the JSON of Spark's StreamingQueryProgress."""
    said = json.loads(text)
    sources = said.get("sources") or []
    operators = said.get("stateOperators") or []
    return BatchProgress(
        query=str(said.get("name") or said["id"]),
        query_id=str(said["id"]),
        batch=int(said["batchId"]),
        rows=int(said.get("numInputRows") or 0),
        rows_per_second=float(said.get("processedRowsPerSecond") or 0.0),
        batch_seconds=float((said.get("durationMs") or {}).get("triggerExecution") or 0) / 1_000,
        watermark=(said.get("eventTime") or {}).get("watermark"),
        rows_dropped_late=sum(int(one.get("numRowsDroppedByWatermark") or 0) for one in operators),
        duplicates_dropped=sum(_duplicates(one) for one in operators),
        lag_records=_lag(sources),
        positions={
            one: offset for source in sources for one, offset in positions_in(source.get("endOffset"))
        },
    )


def positions_in(offset: Any) -> Iterator[tuple[tuple[str, int], int]]:
    """The partitions in an offset of the form `{"topic": {"0": 12}}`; nothing from any other form."""
    if not isinstance(offset, dict):
        return
    for topic, partitions in offset.items():
        if not isinstance(partitions, dict):
            continue
        for partition, position in partitions.items():
            if str(partition).isdecimal() and isinstance(position, int):
                yield (str(topic), int(partition)), position


def _lag(sources: list[dict[str, Any]]) -> int | None:
    """How many records there were that the batch did not cover; unknown where no source says."""
    behind = None
    for source in sources:
        latest = dict(positions_in(source.get("latestOffset")))
        if not latest:
            continue
        done = dict(positions_in(source.get("endOffset")))
        # Spark notes where the source ends before it plans the batch, which may reach further.
        left = sum(max(0, end - done.get(one, end)) for one, end in latest.items())
        behind = left if behind is None else behind + left
    return behind


def _duplicates(operator: dict[str, Any]) -> int:
    return int((operator.get("customMetrics") or {}).get("numDroppedDuplicateRows") or 0)


class RunState(enum.StrEnum):
    """Of a query, and of a run."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class QueryStatus:
    """One query as it stands."""

    name: str
    id: str
    state: RunState = RunState.RUNNING
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
class RunStatus:
    """The whole run as it stands."""

    name: str
    state: RunState
    queries: tuple[QueryStatus, ...] = ()
    error: str | None = None


class RunMonitor:
    """Takes what happens, from any thread; returns how things stand."""

    def __init__(self, name: str) -> None:
        self._lock = threading.Lock()
        self._queries: dict[str, QueryStatus] = {}
        self._run = RunStatus(name, RunState.STARTING)

    def view(self) -> RunStatus:
        with self._lock:
            return replace(self._run, queries=tuple(self._queries.values()))

    def running(self) -> None:
        self._end(RunState.RUNNING, None)

    def stopped(self) -> None:
        self._end(RunState.STOPPED, None)

    def failed(self, error: str) -> None:
        self._end(RunState.FAILED, error)

    def query_started(self, name: str, query_id: str) -> None:
        with self._lock:
            self._queries.setdefault(name, QueryStatus(name, query_id))

    def progressed(self, progress: BatchProgress) -> None:
        """Count a batch; Spark reports each one once."""
        with self._lock:
            before = self._queries.get(progress.query) or QueryStatus(progress.query, progress.query_id)
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
                state = RunState.STOPPED if error is None else RunState.FAILED
                self._queries[name] = replace(before, state=state, error=error)

    def _end(self, state: RunState, error: str | None) -> None:
        with self._lock:
            self._run = replace(self._run, state=state, error=error)


@contextmanager
def lag_watched(board: RunMonitor, connection: Mapping[str, str]) -> Iterator[None]:
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
        # A broker that does not respond keeps it for a while, which is no reason to wait.
        thread.join(1.0)


def look_once(board: RunMonitor, endpoint: Endpoint) -> None:
    for query in board.view().queries:
        if query.state is not RunState.RUNNING or not query.positions:
            continue
        try:
            behind = consumer_lag(endpoint, query.positions)
        except PenstockError:
            continue  # a broker that is away; the last figure stays
        if behind is not None:
            board.lag_seen(query.name, behind.records, behind.seconds)


Taker = Callable[[BatchProgress], None]


def board_listener(board: RunMonitor, takers: Sequence[Taker]) -> "StreamingQueryListener":
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
