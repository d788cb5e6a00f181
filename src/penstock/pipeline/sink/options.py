"""The options for writing, checked in the driver and carried to the tasks."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.client import settings_refused
from penstock.pipeline.errors import BadOption
from penstock.pipeline.settings import choice_option, kafka_settings, option

AT_LEAST_ONCE = "at-least-once"
EXACTLY_ONCE = "exactly-once"
OPTIONS = ("topic", "delivery", "kafka.*")
# Spark's own, and the official connector's: headers are written wherever there is a column of them.
_WITHOUT_MEANING = ("path", "checkpointLocation", "includeHeaders")


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Where to write and what that promises; `topic` is None when a column names it."""

    settings: Mapping[str, str]
    topic: str | None = None
    delivery: str = AT_LEAST_ONCE


def sink_options(options: Mapping[str, str]) -> SinkOptions:
    """Read the options that Spark hands over."""
    topic = option(options, "topic")
    if topic is not None and not topic.strip():
        raise BadOption("topic", "is empty")
    delivery = choice_option(options, "delivery", (AT_LEAST_ONCE, EXACTLY_ONCE), AT_LEAST_ONCE)
    settings = kafka_settings(options)
    if (refused := settings_refused(settings)) is not None:
        raise BadOption(f"kafka.{refused}", f"{settings[refused]!r} would break delivery {delivery}")
    return SinkOptions(settings, None if topic is None else topic.strip(), delivery)


def refuse_unknown(options: Mapping[str, str]) -> None:
    """A misspelled option would otherwise be one that silently does nothing."""
    known = {name.lower(): name for name in (*OPTIONS, *_WITHOUT_MEANING)}
    for name in options:
        if name.lower() in known or name.lower().startswith("kafka."):
            continue
        close = difflib.get_close_matches(name.lower(), known, n=1)
        hint = f"did you mean {known[close[0]]}?" if close else f"known are {', '.join(OPTIONS)}"
        raise BadOption(name, f"is not known; {hint}")
