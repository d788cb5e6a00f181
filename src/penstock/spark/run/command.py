"""`penstock pipeline list|run|status`, announced to the command line as an entry point.

pyspark is imported when something runs and not before: `--help` is fast, and works without it.

Left out: starting a run in the background. `run` stays in the foreground, where a terminal,
systemd or Kubernetes looks after it; `status` finds it by its state directory.
"""

import importlib
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from penstock.client.login_file import refuse_secrets
from penstock.spark.errors import SparkOptionError
from penstock.spark.run.registry import BatchJob, Pipeline, UnknownPipeline

STATE_DIR_DEFAULT = Path("penstock-pipeline")
STATE_DIR_OPTION = typer.Option(
    None, "--state-dir", help=f"Where status, log, checkpoints and tables live; ./{STATE_DIR_DEFAULT}."
)
JSON_OPTION = typer.Option(False, "--json", help="Print JSON.")
COLUMNS = (
    *("pipeline", "query", "state", "pid", "batch", "rows", "rows/s", "lag records", "lag s"),
    *("watermark", "dropped late", "error"),
)
NAME = typer.Argument(metavar="NAME", help="A pipeline or job of `list`, or module:attribute.")
CONFIG = typer.Option(None, "--config", help="A YAML file with the pipeline's configuration.")
SET = typer.Option([], "--set", help="A key=value of the configuration, above the file's; may be repeated.")
MASTER = typer.Option("local[*]", "--master", help="Spark's master: local[*], local-cluster[…], spark://….")
CONF = typer.Option([], "--conf", help="A key=value of Spark's configuration; may be repeated.")
ONCE = typer.Option(False, "--once", help="Deal with everything that is there, then end.")
BOOTSTRAP = typer.Option(None, "--bootstrap", help="The broker's host:port, above the configuration's.")
METRICS = typer.Option(None, "--metrics", help="Serve Prometheus metrics at this host:port.")
app = typer.Typer(help="Run the Spark pipelines, and see how they stand.", no_args_is_help=True)


def pairs(option: str, given: Sequence[str]) -> dict[str, str]:
    """Take `key=value` arguments apart; a later one wins."""
    taken = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise SparkOptionError(option, f"not a key=value: {text!r}")
        taken[key.strip()] = value
    return taken


def pipelines() -> Mapping[str, Pipeline]:
    from penstock.spark.metrics import PIPELINES

    return PIPELINES


def jobs() -> Mapping[str, BatchJob]:
    from penstock.spark.jobs import JOBS

    return JOBS


def find(name: str) -> Pipeline | BatchJob:
    """What a name stands for; raises `UnknownPipeline`, or `SparkOptionError` if its module lacks it."""
    if ":" in name:
        return _of_module(name)
    known: dict[str, Pipeline | BatchJob] = {**pipelines(), **jobs()}
    if name not in known:
        raise UnknownPipeline(name, known)
    return known[name]


def is_job(found: Pipeline | BatchJob) -> bool:
    return hasattr(found, "run")


def _of_module(name: str) -> Pipeline | BatchJob:
    module, _, attribute = name.partition(":")
    # As `python -m` does: what lies where the command is typed can be named.
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: Pipeline | BatchJob = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise SparkOptionError("NAME", f"{name!r} cannot be loaded: {error}") from None
    if not hasattr(found, "configure"):
        raise SparkOptionError(
            "NAME", f"{name!r} is neither a pipeline nor a job: it has no method configure"
        )
    return found


def list_known(*, as_json: bool = JSON_OPTION) -> None:
    """List the pipelines and jobs."""
    rows = [
        *((name, "pipeline", one.summary) for name, one in pipelines().items()),
        *((name, "job", one.summary) for name, one in jobs().items()),
    ]
    if as_json:
        _write_json([dict(zip(("name", "kind", "summary"), row, strict=True)) for row in rows])
        return
    _write_table(("name", "kind", "summary"), rows)


def show_status(*, state_dir: Path | None = STATE_DIR_OPTION, as_json: bool = JSON_OPTION) -> None:
    """Show how the runs of a state directory stand, or stood when they ended.

    Exit code 1 if one of them has failed, or died without an error.
    """
    from penstock.spark.run.status import read_statuses

    directory = state_dir or STATE_DIR_DEFAULT
    statuses = list(read_statuses(directory))
    if as_json:
        _write_json(statuses)
    elif not statuses:
        sys.stdout.write(f"nothing has run on {directory}\n")
    else:
        _write_table(COLUMNS, [row for status in statuses for row in _rows(status)])
    if any(status["state"] in ("failed", "died") for status in statuses):
        raise typer.Exit(1)


def _rows(status: dict[str, Any]) -> Iterable[Sequence[object]]:
    for query in status["queries"] or [{}]:
        yield (
            status["name"],
            _shown(query.get("name")),
            query.get("state") or status["state"],
            status["pid"],
            _shown(query.get("batch")),
            f"{query.get('rows', 0):,}",
            f"{query.get('rows_per_second', 0):,.0f}",
            _shown(query.get("lag_records")),
            _shown(query.get("lag_seconds")),
            _shown(query.get("watermark")),
            query.get("rows_dropped_late", 0),
            _shown(query.get("error") or status.get("error")),
        )


def _shown(value: object) -> object:
    return "-" if value is None else f"{value:,.1f}" if isinstance(value, float) else value


def _write_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def _write_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table on a terminal; elsewhere plain text in columns under a header, as all commands print it."""
    if not sys.stdout.isatty():
        cells = [[column.upper().replace(" ", "-") for column in columns]]
        cells += [[str(cell) or "-" for cell in row] for row in rows]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        for padded in cells:
            line = "  ".join(cell.ljust(width) for cell, width in zip(padded, widths, strict=True))
            sys.stdout.write(line.rstrip() + "\n")
        return
    from rich.console import Console
    from rich.table import Table

    table = Table()
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(str(cell).replace("[", "\\[") for cell in row))
    Console().print(table)


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
    from penstock.spark.run.display import display_for
    from penstock.spark.run.launch import RunOptions, run_job, run_pipeline
    from penstock.spark.run.session import cores_of, this_machine

    cores_of(master, this_machine())
    found: Any = find(name)
    overrides = pairs("set", settings)
    refuse_secrets("--set", [name.removeprefix("kafka.").removeprefix("kafka.") for name in overrides])
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


app.command("list")(list_known)


app.command("run")(run)


app.command("status")(show_status)
