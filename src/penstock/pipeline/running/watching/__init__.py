"""What the queries do, gathered in one place.

    Spark ──> listener ──> progress ──> board ──> whoever shows it
                                          ^
              broker ──> lagging ─────────┘

Spark calls the listener when a batch ends; the broker is asked every few seconds how far behind
the queries are, since a batch that does not end says nothing.

Left out: tasks and stages. Spark's own web page has them (`--conf spark.ui.enabled=true`).
"""

from penstock.pipeline.running.watching.board import Board, QueryView, RunView, State
from penstock.pipeline.running.watching.lagging import lag_watched
from penstock.pipeline.running.watching.listener import board_listener
from penstock.pipeline.running.watching.progress import Progress, parse_progress

__all__ = [
    "Board",
    "RunView",
    "QueryView",
    "State",
    "Progress",
    "parse_progress",
    "board_listener",
    "lag_watched",
]
