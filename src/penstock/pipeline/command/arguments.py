"""`key=value` arguments, and where a run keeps its files unless it is told."""

from collections.abc import Sequence
from pathlib import Path

import typer

from penstock.pipeline.errors import BadOption

STATE_DIR_DEFAULT = Path("penstock-pipeline")
STATE_DIR_OPTION = typer.Option(
    None, "--state-dir", help=f"Where status, log, checkpoints and tables live; ./{STATE_DIR_DEFAULT}."
)
JSON_OPTION = typer.Option(False, "--json", help="Print JSON.")


def pairs(option: str, given: Sequence[str]) -> dict[str, str]:
    """Take `key=value` arguments apart; a later one wins."""
    taken = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise BadOption(option, f"not a key=value: {text!r}")
        taken[key.strip()] = value
    return taken
