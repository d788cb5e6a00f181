"""What is wrong with a configuration, in words for the person who wrote it."""

from collections.abc import Sequence
from difflib import get_close_matches

from penstock.core.model import PenstockError


class ConfigError(PenstockError):
    """The configuration cannot be used; `problems` says everything that is wrong with it."""

    def __init__(self, problems: Sequence[str]) -> None:
        assert problems
        self.problems = tuple(problems)
        more = len(problems) - 1
        rest = f" (and {more} more: `penstock config check` lists them)" if more else ""
        super().__init__(problems[0] + rest)


def unknown(what: str, name: str, source: str, known: Sequence[str]) -> str:
    """The problem of an unknown name, with the nearest known one."""
    near = get_close_matches(name, known, n=1, cutoff=0.6)
    hint = f"; did you mean {near[0]}?" if near else ""
    return f"unknown {what} {name} ({source}){hint}"


def unusable(key: str, value: str, source: str, allowed: str) -> str:
    """The problem of a value that its setting does not allow."""
    shown = value if len(value) <= 80 else value[:77] + "..."
    return f"{key}: {shown!r} ({source}) is not allowed: expected {allowed}"
