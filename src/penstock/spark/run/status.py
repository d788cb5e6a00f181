"""How a run stands: the status file, for `penstock pipeline status`, and figures for Prometheus.

The file is replaced as a whole by a rename, so that a reader never sees half of one. A writer that was
killed leaves it saying "running": the reader therefore checks whether that very process is still
alive, by its number and the time it began, since numbers are used again.
"""

import dataclasses
import json
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from penstock.core.model import MILLISECOND, SECOND
from penstock.observability import Metrics, render
from penstock.runtime.loop import MachineClock
from penstock.spark.errors import SparkOptionError
from penstock.spark.run.progress import BatchProgress, QueryStatus, RunState, RunStatus

STATUS_NAME = "status.json"
DIED = "died"
UPDATE_SECONDS = 5
ALIVE_STATES = (RunState.STARTING.value, RunState.RUNNING.value)
# A batch of Spark's takes a fifth of a second at least.
BATCH_BOUNDS_NS = (
    *(100 * MILLISECOND, 250 * MILLISECOND, 500 * MILLISECOND, 1 * SECOND, 2_500 * MILLISECOND, 5 * SECOND),
    *(10 * SECOND, 30 * SECOND, 60 * SECOND, 300 * SECOND),
)
PATHS = ("/metrics", "/")


class StatusFile:
    """Where one run writes how it stands."""

    def __init__(self, directory: Path, about: Mapping[str, str]) -> None:
        self._path = directory / STATUS_NAME
        self._fixed = {
            **about,
            "pid": os.getpid(),
            "process_started": process_started(os.getpid()),
            "started": _now(),
        }

        self._clock = MachineClock()
        self._written: RunStatus | None = None
        self._written_at = self._clock.now()

    def write(self, run: RunStatus) -> None:
        """Write what has changed; `updated` moves on now and then without a change."""
        now = self._clock.now()
        if run == self._written and now - self._written_at < UPDATE_SECONDS * SECOND:
            return
        self._written, self._written_at = run, now
        content = {**self._fixed, "updated": _now(), **run_fields(run)}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self._path.with_suffix(f".{os.getpid()}")
        fresh.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n")
        fresh.replace(self._path)


def run_fields(run: RunStatus) -> dict[str, Any]:
    """A run as plain values."""
    return {
        "name": run.name,
        "state": run.state.value,
        "error": run.error,
        "queries": [query_fields(query) for query in run.queries],
    }


def query_fields(query: Any) -> dict[str, Any]:
    fields = dataclasses.asdict(query)
    # JSON has no tuples for keys, and the offsets are in the checkpoint and in the broker's group.
    del fields["positions"]
    return fields


def read_statuses(directory: Path) -> Iterator[dict[str, Any]]:
    """What every run below a state directory wrote last; a dead writer's state is `died`."""
    for path in sorted(directory.glob(f"*/{STATUS_NAME}")):
        try:
            status = json.loads(path.read_text())
        except (OSError, ValueError):
            continue  # removed, or not written by us
        if isinstance(status, dict) and "state" in status:
            yield _as_it_is(status)


def _as_it_is(status: dict[str, Any]) -> dict[str, Any]:
    if status["state"] not in ALIVE_STATES:
        return status
    pid, began = status.get("pid"), status.get("process_started")
    if isinstance(pid, int) and began is not None and process_started(pid) == began:
        return status
    queries = [{**query, "state": DIED} for query in status.get("queries") or []]
    return {**status, "state": DIED, "queries": queries}


def process_started(pid: int) -> int | None:
    """When a process began, in the kernel's ticks since the machine did; nothing if it is no more."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The name in parentheses may hold blanks; what follows it does not.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] == "Z" else int(fields[19])


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


class RunMetrics(Metrics):
    """Counted from each batch's progress; gauges show the last one."""

    def __init__(self) -> None:
        super().__init__()
        query = ("query",)
        self.rows = self.counter("penstock_pipeline_rows_total", "Rows read by a query.", query)
        self.batches = self.counter("penstock_pipeline_batches_total", "Batches completed by a query.", query)
        self.late = self.counter(
            "penstock_pipeline_rows_dropped_late_total", "Rows dropped behind a query's watermark.", query
        )
        self.duplicates = self.counter(
            "penstock_pipeline_duplicates_dropped_total", "Rows dropped because they had come before.", query
        )
        self.batch_seconds = self.seconds(
            "penstock_pipeline_batch_seconds",
            "Time of a batch, from trigger to commit.",
            query,
            BATCH_BOUNDS_NS,
        )
        self.rate = self.gauge(
            "penstock_pipeline_rows_per_second", "Rows per second of the last batch with rows.", query
        )
        self.lag_records = self.gauge(
            "penstock_pipeline_lag_records", "Records that a query has not read yet.", query
        )
        self.lag_seconds = self.gauge(
            "penstock_pipeline_lag_seconds",
            "Age of the first record that a query has not read; 0 if none.",
            query,
        )
        self.running = self.gauge("penstock_pipeline_running", "1 while a query runs, else 0.", query)
        self._views: dict[str, QueryStatus] = {}

    def count(self, progress: BatchProgress) -> None:
        """Add a batch."""
        self.rows.of(progress.query).count += progress.rows
        self.batches.of(progress.query).count += 1
        self.late.of(progress.query).count += progress.rows_dropped_late
        self.duplicates.of(progress.query).count += progress.duplicates_dropped
        self.batch_seconds.of(progress.query).observe(round(progress.batch_seconds * SECOND))

    def show(self, run: RunStatus) -> None:
        """Let the gauges show this."""
        for view in run.queries:
            name = view.name
            self._views[name] = view
            self.rate.read(lambda name=name: self._views[name].rows_per_second, name)  # type: ignore[misc]
            self.running.read(lambda name=name: self._views[name].state is RunState.RUNNING, name)  # type: ignore[misc]
            for gauge, value in ((self.lag_records, view.lag_records), (self.lag_seconds, view.lag_seconds)):
                if value is None:
                    gauge.forget(name)
                else:
                    gauge.read(lambda value=value: value, name)  # type: ignore[misc]


@contextmanager
def serve_metrics(address: str, metrics: Metrics) -> Iterator[str]:
    """Serve while the context lasts; returns the address, with the port where 0 was asked for."""

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
        raise SparkOptionError(
            "metrics", f"{address} cannot be listened on: {error.strerror or error}"
        ) from None
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
        raise SparkOptionError("metrics", f"not a host:port: {address!r}")
    return host.strip("[]"), int(port)
