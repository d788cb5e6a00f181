"""`penstock pipeline run`: one pipeline until it is stopped, or one job to its end."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from penstock.pipeline.command.arguments import JSON_OPTION, STATE_DIR_DEFAULT, STATE_DIR_OPTION, pairs

NAME = typer.Argument(metavar="NAME", help="A pipeline or job of `list`, or module:attribute.")
CONFIG = typer.Option(None, "--config", help="A YAML file with the pipeline's configuration.")
SET = typer.Option([], "--set", help="A key=value of the configuration, above the file's; may be repeated.")
MASTER = typer.Option("local[*]", "--master", help="Spark's master: local[*], local-cluster[…], spark://….")
CONF = typer.Option([], "--conf", help="A key=value of Spark's configuration; may be repeated.")
ONCE = typer.Option(False, "--once", help="Deal with everything that is there, then end.")
BOOTSTRAP = typer.Option(None, "--bootstrap", help="The broker's host:port, above the configuration's.")
METRICS = typer.Option(None, "--metrics", help="Serve Prometheus metrics at this host:port.")


def run(
    name: str = NAME,
    *,
    config: Path | None = CONFIG,
    settings: list[str] = SET,
    master: str = MASTER,
    conf: list[str] = CONF,
    once: bool = ONCE,
    bootstrap: str | None = BOOTSTRAP,
    state_dir: Path | None = STATE_DIR_OPTION,
    metrics: str | None = METRICS,
    as_json: bool = JSON_OPTION,
) -> None:
    """Run a pipeline until SIGTERM or Ctrl-C (exit code 0), or a job to its end.

    Started again, it goes on where it ended. A query that fails ends the run with exit code 1 and
    one line; Spark's own words are in the log that the line names. JSON is one object a line.
    """
    from penstock.pipeline.command.known import find, is_job
    from penstock.pipeline.running.launch import RunOptions, run_job, run_pipeline
    from penstock.pipeline.running.reporting import display_for
    from penstock.pipeline.running.session.defaults import cores_of, this_machine

    cores_of(master, this_machine())
    found: Any = find(name)
    overrides = pairs("set", settings)
    if bootstrap is not None:
        overrides["bootstrap"] = bootstrap
    if state_dir is not None:
        overrides["state_dir"] = str(state_dir)
    configured = found.configure(config, overrides)
    home = Path(getattr(configured, "state_dir", STATE_DIR_DEFAULT)) if state_dir is None else state_dir
    options = RunOptions(name, home.absolute(), master, pairs("conf", conf), once, metrics)
    with display_for(as_json) as display:
        if not is_job(found):
            run_pipeline(found, configured, options, display)
            return
        report = run_job(found, configured, options, display)
    _show_report(report, as_json)


def _show_report(report: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        sys.stdout.write(json.dumps(dict(report), ensure_ascii=False, default=str) + "\n")
        return
    for name, value in report.items():
        shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
        sys.stdout.write(f"{name}\t{shown}\n")
