"""What a measurement is, which series it belongs to, and how records are decoded into measurements.

A record's value is a JSON object with

    name        a string, not empty
    value       a finite number
    labels      an object of strings; may be left out
    timestamp   whole milliseconds since 1970, before the year 2100
    client      a string, not empty

and any other keys. Anything else is malformed, with the reason in a phrase; and so is
a timestamp that is further ahead of the record's own time than the configuration allows.

A series is one name with one set of labels. Its text is the name followed by the labels as JSON with
sorted keys, `cpu{"host":"a","zone":"b"}`. No two series share a text: if two did, the labels of one
would end in the labels of the other, which would then begin inside a string of the first and have
its quotes the wrong way round.

Decoding runs where the records are read, in the same process, before Spark sees them: a
compiled decoder takes a third of a microsecond for a record and knows the rules exactly, where
Spark's `from_json` takes ten times as long, reads `5` as a string if asked for one, and ignores
what follows the object.

    good   series, value, timestamp, client                            error is null
    bad    topic/partition/offset, null, watermark + 1 ms, ""          error and raw have the rest

A bad row has an identity of its own in the columns by which repeats are dropped, so that none is
taken for another. Its event time is the first that is not late: it does not move the watermark,
and Spark forgets it as soon as the watermark moves at all.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec

if TYPE_CHECKING:
    import pyarrow as pa

TIMESTAMP_END_MS = 4_102_444_800_000
Text = Annotated[str, msgspec.Meta(min_length=1)]
Timestamp = Annotated[int, msgspec.Meta(ge=0, lt=TIMESTAMP_END_MS)]
_AT = re.compile(r"^(?P<what>.*?) - at `(?P<key>key in )?\$\.?(?P<path>[^`]*)`$")
_NOT_JSON = {"Input data was truncated": "cut short"}
decode_labels = msgspec.json.Decoder(dict[str, str]).decode
# A fleet of a million series needs no more than this at a time; forgetting them costs a decode each.
SERIES_REMEMBERED_MAX = 200_000
NO_WATERMARK_MS = -1
SCHEMA_DDL = (
    "series string, value double, timestamp timestamp, client string, topic string, partition int,"
    " offset long, recorded timestamp, error string, key binary, raw binary"
)


class Measurement(msgspec.Struct, gc=False, frozen=True):
    """A record's value; the labels stay as they were written, since few sets of them ever differ."""

    name: Text
    value: float
    timestamp: Timestamp
    client: Text
    labels: msgspec.Raw = msgspec.Raw(b"{}")


class MetricSeries(NamedTuple):
    """One name with one set of labels."""

    name: str
    labels: dict[str, str]

    @property
    def text(self) -> str:
        labels = json.dumps(self.labels, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
        return self.name + labels

    @classmethod
    def parse(cls, text: str) -> "MetricSeries":
        """Undo `text`.

        >>> Series.parse('odd{name{"host":"a"}')
        Series(name='odd{name', labels={'host': 'a'})
        """
        start = text.find("{")
        while start >= 0:
            try:
                return cls(text[:start], decode_labels(text[start:].encode()))
            except msgspec.DecodeError:
                start = text.find("{", start + 1)
        raise ValueError(f"not a series: {text!r}")


decode_measurement = msgspec.json.Decoder(Measurement).decode


def reason(error: Exception) -> str:
    """Why a value is malformed, in a phrase."""
    if isinstance(error, UnicodeDecodeError):
        return "not UTF-8"
    if isinstance(error, RecursionError):
        return "nested too deeply"
    message = str(error)
    found = _AT.match(message)
    if found is None:
        if isinstance(error, msgspec.ValidationError):
            return message.replace("`", "")
        why = message.removeprefix("JSON is malformed: ")
        return f"not JSON: {_NOT_JSON.get(why, why)}"
    return f"{found['path'] or 'value'}: {found['what'].replace('`', '')}"


def schema() -> "pa.Schema":
    """What a decoded batch looks like, in Spark's types exactly."""
    import pyarrow as pa

    return pa.schema(
        [
            ("series", pa.string()),
            ("value", pa.float64()),
            ("timestamp", pa.timestamp("us", tz="UTC")),
            ("client", pa.string()),
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("recorded", pa.timestamp("us", tz="UTC")),
            ("error", pa.string()),
            ("key", pa.binary()),
            ("raw", pa.binary()),
        ]
    )


class MalformedRecord(ValueError):
    """Why a record is no measurement, where the decoder has nothing to say."""


@dataclass(slots=True)
class _Rows:
    """The columns of one batch while they grow; the bad rows are few, and stand by their index."""

    series: list[str | None] = field(default_factory=list)
    values: list[float | None] = field(default_factory=list)
    timestamps: list[int] = field(default_factory=list)
    clients: list[str] = field(default_factory=list)
    errors: dict[int, str] = field(default_factory=dict)


class MeasurementDecoder:
    """Remembers the series it has met, so that their labels are looked at once.

    What is not newer than `watermark_ms` is late: windows that it belongs to may have been closed.
    What is more than `ahead_ms` newer than its own record is malformed: it would move the watermark
    to where everybody else is late. The record's time is compared, and not the clock, so that the
    result is the same whenever the record is read.
    """

    def __init__(self, watermark_ms: int = NO_WATERMARK_MS, ahead_ms: int | None = None) -> None:
        self._watermark_ms = watermark_ms
        self._ahead_ms = ahead_ms
        self._series: dict[tuple[str, bytes], str] = {}
        self._schema = schema()

    def decode(self, records: "pa.RecordBatch") -> "pa.RecordBatch":
        """A row for each record, in the same order."""
        import pyarrow as pa

        values = records.column("value")
        contents: list[bytes | None] = values.to_pylist()
        rows = self._rows(contents, _is_utf8(values), records.column("timestamp"))
        for index in rows.errors:
            origin = (records.column(name)[index].as_py() for name in ("topic", "partition", "offset"))
            rows.series[index] = "/".join(map(str, origin))
        times = pa.array(rows.timestamps, pa.int64()).cast(pa.timestamp("ms", tz="UTC"))
        arrays = {
            "series": pa.array(rows.series, pa.string()),
            "value": pa.array(rows.values, pa.float64()),
            "timestamp": times.cast(pa.timestamp("us", tz="UTC")),
            "client": pa.array(rows.clients, pa.string()),
            "recorded": records.column("timestamp"),
            "error": _sparse(rows.errors, len(contents), pa.string()),
            "raw": _sparse(_cells(values, rows.errors), len(contents), pa.binary()),
        }
        arrays |= {name: records.column(name) for name in ("topic", "partition", "offset", "key")}
        return pa.RecordBatch.from_arrays([arrays[name] for name in self._schema.names], schema=self._schema)

    def _rows(self, contents: "list[bytes | None]", is_utf8: bool, recorded: "pa.Array") -> _Rows:
        rows = _Rows()
        doubtful_ms = self._doubtful_ms(recorded)
        known, watermark_ms = self._series, self._watermark_ms
        for index, content in enumerate(contents):
            try:
                if not content:
                    raise MalformedRecord("no value" if content is None else "empty value")
                if not is_utf8:
                    # The decoder does not look into strings that it skips.
                    content.decode()
                found = decode_measurement(content)
                if found.timestamp <= watermark_ms:
                    raise MalformedRecord(
                        f"late: {found.timestamp} is not after the watermark {watermark_ms}"
                    )
                if found.timestamp > doubtful_ms:
                    self._refuse_ahead(found.timestamp, recorded, index)
                labels = bytes(found.labels)
                text = known.get((found.name, labels)) or self._meet(found.name, labels)
            except (ValueError, RecursionError) as error:
                rows.errors[index] = str(error) if isinstance(error, MalformedRecord) else reason(error)
                rows.series.append(None)
                rows.values.append(None)
                rows.timestamps.append(watermark_ms + 1)
                rows.clients.append("")
            else:
                rows.series.append(text)
                rows.values.append(found.value)
                rows.timestamps.append(found.timestamp)
                rows.clients.append(found.client)
        return rows

    def _doubtful_ms(self, recorded: "pa.Array") -> int:
        """What is not newer than this is ahead of no record: few rows have to be looked at singly."""
        import pyarrow.compute as pc

        if self._ahead_ms is None or not len(recorded):
            return TIMESTAMP_END_MS
        return _milliseconds(pc.min(recorded)) + self._ahead_ms

    def _refuse_ahead(self, timestamp: int, recorded: "pa.Array", index: int) -> None:
        recorded_ms = _milliseconds(recorded[index])
        # Before 1970 means that the producer gave none.
        if self._ahead_ms is not None and 0 <= recorded_ms < timestamp - self._ahead_ms:
            raise MalformedRecord(
                f"ahead: {timestamp} is more than {self._ahead_ms} ms after the record's time {recorded_ms}"
            )

    def _meet(self, name: str, labels: bytes) -> str:
        if len(self._series) >= SERIES_REMEMBERED_MAX:
            self._series.clear()
        try:
            text = MetricSeries(name, decode_labels(labels)).text
        except ValueError as error:
            raise MalformedRecord(f"labels: {reason(error).removeprefix('value: ')}") from None
        self._series[(name, labels)] = text
        return text


def _is_utf8(values: "pa.Array") -> bool:
    """Whether every value is; looking at all of them at once is nearly free."""
    import pyarrow as pa

    try:
        values.cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return True


def _milliseconds(moment: "pa.Scalar") -> int:
    import pyarrow as pa

    return int(moment.cast(pa.int64()).as_py()) // 1_000


def _cells(column: "pa.Array", indices: Iterable[int]) -> dict[int, Any]:
    return {index: column[index].as_py() for index in indices}


def _sparse(cells: Mapping[int, Any], length: int, kind: "pa.DataType") -> "pa.Array":
    import pyarrow as pa

    if not cells:
        return pa.nulls(length, kind)
    return pa.array([cells.get(index) for index in range(length)], kind)
