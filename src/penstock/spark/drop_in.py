"""What Spark itself refuses to do for a data source in Python, done in the driver.

Spark's own connector takes a batch without a mode, and a stream in Update mode. For a data source that
is written in Python the JVM refuses both before the source is asked. `install` makes the writers of
pyspark say it in words that are not refused:

    df.write.format("penstock").save()                      mode append, the only one that a topic has
    df.writeStream.format("penstock").outputMode("update")  every batch written by foreachBatch

It changes two classes of pyspark in this process, and for this format alone; nothing calls it but you.

Left out: Spark Connect, whose writers are other classes.
"""

from collections.abc import Callable
from functools import partial, wraps
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_FORMAT = "penstock"
_QUERY_ID = "sql.streaming.queryId"
_NOTES = "_penstock_notes"


def install() -> None:
    """Let `format("penstock")` be written without a mode, and in Update mode; a second call does nothing."""
    from pyspark.sql.readwriter import DataFrameWriter
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    if hasattr(DataFrameWriter, _NOTES):
        return
    setattr(DataFrameWriter, _NOTES, True)
    _replace(DataFrameWriter, "save", _save)
    for name in ("format", "outputMode", "option", "options"):
        _replace(DataStreamWriter, name, partial(_note, name))
    _replace(DataStreamWriter, "start", _start)


def _replace(kind: type, name: str, ours: Callable[..., Any]) -> None:
    theirs = getattr(kind, name)

    @wraps(theirs)
    def method(writer: Any, *arguments: Any, **named: Any) -> Any:
        return ours(theirs, writer, *arguments, **named)

    setattr(kind, name, method)


def _save(
    save: Callable[..., None],
    writer: Any,
    path: str | None = None,
    format: str | None = None,  # noqa: A002
    mode: str | None = None,
    *arguments: Any,
    **named: Any,
) -> None:
    source = format or writer._jwrite.source()
    if source == _FORMAT and mode is None and writer._jwrite.curmode().name() == "ErrorIfExists":
        mode = "append"
    save(writer, path, format, mode, *arguments, **named)


def _note(name: str, call: Callable[..., Any], writer: Any, *arguments: Any, **named: Any) -> Any:
    """Remember what the JVM's writer keeps to itself."""
    notes = writer.__dict__.setdefault(_NOTES, {})
    match name:
        case "option":
            key, value = (*arguments, *named.values())
            notes.setdefault("options", {})[key] = value
        case "options":
            notes.setdefault("options", {}).update(named)
        case _:
            notes[name] = str((*arguments, *named.values())[0]).lower()
    return call(writer, *arguments, **named)


def _start(
    start: Callable[..., Any],
    writer: Any,
    path: str | None = None,
    format: str | None = None,  # noqa: A002
    outputMode: str | None = None,  # noqa: N803
    *arguments: Any,
    **options: Any,
) -> Any:
    notes = writer.__dict__.get(_NOTES, {})
    source = format or notes.get("format")
    mode = (outputMode or notes.get("outputMode", "append")).lower()
    if source == _FORMAT and mode == "update":
        given = {**notes.get("options", {}), **options}
        ours = {key: value for key, value in given.items() if key.lower() != "checkpointlocation"}
        writer.foreachBatch(partial(_write_batch, ours))
        format = None  # noqa: A001
    return start(writer, path, format, outputMode, *arguments, **options)


def _write_batch(options: dict[str, Any], frame: "DataFrame", batch_id: int) -> None:
    # A batch that Spark tries again is the same batch to the broker.
    query = frame.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
    named = {"txnAppId": query, "txnVersion": str(batch_id), **options}
    frame.write.format(_FORMAT).options(**named).mode("append").save()
