"""The options for writing, checked in the driver and carried to the tasks."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from penstock.client import settings_refused
from penstock.spark.errors import PipelineError, SparkOptionError
from penstock.spark.kafka_options import choice_option, integer_option, kafka_settings, option

if TYPE_CHECKING:
    import pyarrow as pa

AT_LEAST_ONCE = "at-least-once"
EXACTLY_ONCE = "exactly-once"
# What the broker offers: exactly-once if it has batch commit.
BEST = "best"
OPTIONS = ("topic", "delivery", "txnAppId", "txnVersion", "loginFile", "kafka.*")
# Spark's own, and the official connector's: headers are written wherever there is a column of them.
_WITHOUT_MEANING = ("path", "checkpointLocation", "includeHeaders")
TOPIC_MISSING = "there is no column topic; set the option topic or add the column"
_EXPECTED = {
    "key": "string or binary",
    "value": "string or binary",
    "topic": "string",
    "partition": "int",
    "headers": "array<struct<key: string, value: binary>>",
    "timestamp": "timestamp, or long in ms",
}
COLUMNS = frozenset(_EXPECTED)


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Where to write and with which guarantee; `topic` is None when a column names it."""

    settings: Mapping[str, str] = field(repr=False)
    topic: str | None = None
    delivery: str = BEST
    # What a batch job is known by when it is run again; a streaming query has its id and its batches.
    application: tuple[str, int] | None = None


def sink_options(options: Mapping[str, str]) -> SinkOptions:
    """Read the options that Spark hands over."""
    topic = option(options, "topic")
    if topic is not None and not topic.strip():
        raise SparkOptionError("topic", "is empty")
    delivery = choice_option(options, "delivery", (BEST, AT_LEAST_ONCE, EXACTLY_ONCE), BEST)
    settings = kafka_settings(options)
    if (weaker := settings_refused(settings)) is not None:
        # Who asks for less than a guarantee, and for no guarantee, gets what is asked for.
        if weaker == "transactional.id" or delivery != BEST:
            raise SparkOptionError(f"kafka.{weaker}", f"{settings[weaker]!r} would break delivery {delivery}")
        settings.setdefault("enable.idempotence", "false")
        delivery = AT_LEAST_ONCE
    return SinkOptions(settings, None if topic is None else topic.strip(), delivery, _application(options))


def _application(options: Mapping[str, str]) -> tuple[str, int] | None:
    name, version = option(options, "txnAppId"), integer_option(options, "txnVersion")
    if (name is None) != (version is None):
        raise SparkOptionError("txnAppId", "goes together with txnVersion")
    if name is None or version is None:
        return None
    if not name.strip() or "#" in name:
        raise SparkOptionError("txnAppId", f"{name!r} is empty, or has a # in it")
    return name.strip(), version


def refuse_unknown(options: Mapping[str, str]) -> None:
    """A misspelled option would otherwise be one that silently does nothing."""
    known = {name.lower(): name for name in (*OPTIONS, *_WITHOUT_MEANING)}
    for name in options:
        if name.lower() in known or name.lower().startswith("kafka."):
            continue
        close = difflib.get_close_matches(name.lower(), known, n=1)
        hint = f"did you mean {known[close[0]]}?" if close else f"known are {', '.join(OPTIONS)}"
        raise SparkOptionError(name, f"is not known; {hint}")


class SinkColumns(NamedTuple):
    """Which of the columns that may be there are there."""

    key: bool
    topic: bool
    partition: bool
    headers: bool
    timestamp: bool


def sink_columns(schema: "pa.Schema", topic: str | None) -> SinkColumns:
    """Check names and types; PipelineError with everything that is wrong in one line."""
    names = set(schema.names)
    wrong = [] if "value" in names else ["there is no column value"]
    if topic is None and "topic" not in names:
        wrong.append(TOPIC_MISSING)
    wrong += [
        f"column {name} is {schema.field(name).type}, not {_EXPECTED[name]}"
        for name in _EXPECTED
        if name in names and not _fits(name, schema.field(name).type)
    ]
    if wrong:
        raise PipelineError(f"this frame cannot be written to a topic: {'; '.join(wrong)}")
    return SinkColumns(
        *("key" in names, topic is None, "partition" in names, "headers" in names, "timestamp" in names)
    )


def _fits(name: str, kind: "pa.DataType") -> bool:
    import pyarrow as pa

    match name:
        case "key" | "value":
            # A column of nothing but null has no type of its own.
            return _is_text(kind) or _is_bytes(kind) or bool(pa.types.is_null(kind))
        case "topic":
            return _is_text(kind)
        case "partition":
            return bool(pa.types.is_int32(kind))
        case "timestamp":
            return bool(pa.types.is_timestamp(kind) or pa.types.is_int64(kind))
        case _:
            return _is_headers(kind)


def _is_text(kind: "pa.DataType") -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_bytes(kind: "pa.DataType") -> bool:
    import pyarrow as pa

    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _is_headers(kind: "pa.DataType") -> bool:
    import pyarrow as pa

    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        return False
    members = kind.value_type
    if not pa.types.is_struct(members) or members.num_fields != 2:
        return False
    key, value = members.field(0), members.field(1)
    return (key.name, value.name) == ("key", "value") and _is_text(key.type) and _is_bytes(value.type)
