"""The figures of a run, by query."""

from penstock.core.model import MILLISECOND, SECOND
from penstock.observability import Metrics
from penstock.pipeline.running.watching.board import QueryView, RunView, State
from penstock.pipeline.running.watching.progress import Progress

# A batch of Spark's takes a fifth of a second at least.
BATCH_BOUNDS_NS = (
    *(100 * MILLISECOND, 250 * MILLISECOND, 500 * MILLISECOND, 1 * SECOND, 2_500 * MILLISECOND, 5 * SECOND),
    *(10 * SECOND, 30 * SECOND, 60 * SECOND, 300 * SECOND),
)


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
        self._views: dict[str, QueryView] = {}

    def count(self, progress: Progress) -> None:
        """Add a batch."""
        self.rows.of(progress.query).count += progress.rows
        self.batches.of(progress.query).count += 1
        self.late.of(progress.query).count += progress.rows_dropped_late
        self.duplicates.of(progress.query).count += progress.duplicates_dropped
        self.batch_seconds.of(progress.query).observe(round(progress.batch_seconds * SECOND))

    def show(self, run: RunView) -> None:
        """Let the gauges show this."""
        for view in run.queries:
            name = view.name
            self._views[name] = view
            self.rate.read(lambda name=name: self._views[name].rows_per_second, name)  # type: ignore[misc]
            self.running.read(lambda name=name: self._views[name].state is State.RUNNING, name)  # type: ignore[misc]
            for gauge, value in ((self.lag_records, view.lag_records), (self.lag_seconds, view.lag_seconds)):
                if value is None:
                    gauge.forget(name)
                else:
                    gauge.read(lambda value=value: value, name)  # type: ignore[misc]
