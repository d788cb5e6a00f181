"""How a run is shown: on the terminal, in a file, to Prometheus.

    display      a table that moves, lines for a log, or JSON lines for a program
    status       the status file, and reading it when its writer may have died
    run_metrics  the figures
    serving      a small HTTP server for them

Everything here reads a `RunView`; nothing knows of Spark.

Left out: a history. The status file says how things stand; Prometheus remembers.
"""

from penstock.pipeline.running.reporting.display import Display, display_for
from penstock.pipeline.running.reporting.run_metrics import RunMetrics
from penstock.pipeline.running.reporting.serving import serve_metrics
from penstock.pipeline.running.reporting.status import StatusFile, read_statuses

__all__ = ["Display", "display_for", "RunMetrics", "serve_metrics", "StatusFile", "read_statuses"]
