"""One line out of what Spark wraps around an error: Java around Java around a Python traceback."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.spark.errors import PipelineError

LENGTH_MAX = 600
CAUSES_MAX = 10
_VAGUE = ("Writing job failed.", "Job aborted.")
_OURS = re.compile(r"^\s*(?:\S*: )?penstock(?:\.\w+)+: (.+)$", re.MULTILINE)
_TRACEBACK = re.compile(
    r"Traceback \(most recent call last\):\n(?:[ \t].*\n)+([\w.]+(?:: .*)?)$", re.MULTILINE
)
_STREAM_FAILED = re.compile(r"^\[STREAM_FAILED\] Query \[[^]]*\] terminated with exception: ")
_SQLSTATE = re.compile(r"\s*SQLSTATE: \w{5}\b")
_ERROR_CLASS = re.compile(r"^\[[A-Z0-9_.]+\] ")
_JAVA_CLASS = re.compile(r"^(?:[a-z]\w*\.)+([A-Z]\w*(?:Exception|Error)): ")


def why(error: BaseException) -> str:
    """What went wrong, in one line out of an error of Spark's and those that caused it."""
    texts: list[str] = []
    cause: BaseException | None = error
    while cause is not None and len(texts) < CAUSES_MAX:
        texts.append(str(cause))
        cause = getattr(cause, "_cause", None)  # where pyspark keeps what Java calls the cause
    return reason(*texts)


def reason(text: str, *causes: str) -> str:
    """What went wrong, as the one who caused it put it.

    An error of ours has one line, and it is at the end of a traceback. Of other Python errors the
    last line of the last traceback is taken, of Spark's own the message without its trimmings.
    A batch whose commit failed, and then its undoing, says nothing itself: its causes do.
    """
    said = _said(text)
    return reason(*causes) if said.endswith(_VAGUE) and causes else said


def _said(text: str) -> str:
    if ours := _OURS.findall(text):
        return _cut(ours[-1])
    if others := _TRACEBACK.findall(text):
        return _cut(others[-1])
    return _cut(_ERROR_CLASS.sub("", _first_paragraph(_STREAM_FAILED.sub("", text.strip()))))


def _first_paragraph(text: str) -> str:
    """Up to the stack trace or the plan that Spark appends."""
    lines: list[str] = []
    for line in text.splitlines():
        if line.lstrip().startswith(("at ", "===", "JVM stacktrace")):
            break
        if lines and not line.strip():
            break
        lines.append(line.strip())
    return _JAVA_CLASS.sub(r"\1: ", " ".join(lines))


def _cut(text: str) -> str:
    line = " ".join(_SQLSTATE.sub("", text).split())
    return line if len(line) <= LENGTH_MAX else f"{line[:LENGTH_MAX]}…"


class RunFailed(PipelineError):
    """A query failed, or Spark did."""


@contextmanager
def in_one_line(what: str, log: Path) -> Iterator[None]:
    """Turn what Spark raises into `RunFailed`, with the log's name for whoever wants the rest."""
    from py4j.protocol import Py4JError, Py4JNetworkError
    from pyspark.errors import PySparkException

    try:
        yield
    except (Py4JNetworkError, ConnectionError, EOFError):
        raise RunFailed(f"{what}: Spark's Java process has gone (more in {log})") from None
    except (PySparkException, Py4JError) as error:
        raise RunFailed(f"{what}: {why(error)} (more in {log})") from None
