"""`penstock pipeline list|run|status`, announced to the command line as an entry point.

    arguments   `--set` and `--conf` taken apart
    known       which pipelines and jobs there are, ours and others'
    listing     `list` and `status`
    running     `run`

pyspark is imported when something runs and not before: `--help` is fast, and works without it.

Left out: starting a run in the background. `run` stays in the foreground, where a terminal,
systemd or Kubernetes looks after it; `status` finds it by its state directory.
"""

import typer

from penstock.pipeline.command.listing import list_known, show_status
from penstock.pipeline.command.running import run

app = typer.Typer(help="Run the Spark pipelines, and see how they stand.", no_args_is_help=True)
app.command("list")(list_known)
app.command("run")(run)
app.command("status")(show_status)

__all__ = ["app"]
