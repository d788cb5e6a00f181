"""`penstock config`: what is in force and where it comes from, and what is wrong with it."""

import os
import sys
from typing import Any

import typer

from penstock.cli.output import JSON_OPTION, counted, show_json, show_table

app = typer.Typer(help="Show and check the configuration.", no_args_is_help=True)
FILE_OPTION = typer.Option(
    None, "--config", metavar="FILE", help="Configuration file instead of penstock.yaml."
)
SET_OPTION = typer.Option(None, "--set", metavar="KEY=VALUE", help="Override one setting; may be repeated.")


@app.command()
def show(
    config: str | None = FILE_OPTION, assignments: list[str] | None = SET_OPTION, as_json: bool = JSON_OPTION
) -> None:
    """Show every setting that is in force, and where its value comes from."""
    from penstock.config import SETTINGS, load, override, warnings_for

    loaded = load(config, os.environ, [override("--set", text) for text in assignments or ()])
    if as_json:
        show_json(
            {
                key: {"value": _json(one.masked(loaded.values[key])), "source": loaded.origins[key]}
                for key, one in SETTINGS.items()
            }
        )
    else:
        rows = [
            (key, one.show(one.masked(loaded.values[key])), loaded.origins[key])
            for key, one in SETTINGS.items()
        ]
        show_table("", ("setting", "value", "source"), rows)
    for warning in warnings_for(loaded.config):
        sys.stderr.write(f"warning: {warning}\n")


def _json(value: Any) -> Any:
    """Numbers, truth values and lists as themselves; addresses as they are written."""
    if type(value) is tuple:
        return [_json(part) for part in value]
    return value if isinstance(value, bool | int | str) else str(value)


@app.command()
def check(
    config: str | None = FILE_OPTION, assignments: list[str] | None = SET_OPTION, as_json: bool = JSON_OPTION
) -> None:
    """Say everything that is wrong with the configuration; exit with 1 if anything is."""
    from penstock.config import ConfigError, load, override, warnings_for

    problems: list[str] = []
    warnings: list[str] = []
    try:
        loaded = load(config, os.environ, [override("--set", text) for text in assignments or ()])
        warnings = warnings_for(loaded.config)
    except ConfigError as error:
        problems = list(error.problems)
    if as_json:
        show_json({"problems": problems, "warnings": warnings})
    else:
        sys.stdout.writelines(f"{problem}\n" for problem in problems)
        sys.stdout.writelines(f"warning: {warning}\n" for warning in warnings)
    if problems:
        raise ConfigError([f"the configuration has {counted(len(problems), 'problem')}"])
    if not as_json:
        sys.stdout.write("the configuration is fine\n")
