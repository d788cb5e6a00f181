"""What a measurement is, and which series it belongs to.

A record's value is a JSON object with

    name        a string, not empty
    value       a finite number
    labels      an object of strings; may be left out
    timestamp   whole milliseconds since 1970, before the year 2100
    client      a string, not empty

and whatever else its sender likes. Anything else is malformed, and says why in a phrase; and so is
a timestamp that is further ahead of the record's own time than the pipeline is told to bear with.

A series is one name with one set of labels. Its text is the name followed by the labels as JSON with
sorted keys, `cpu{"host":"a","zone":"b"}`. No two series share a text: if two did, the labels of one
would end in the labels of the other, which would then begin inside a string of the first and have
its quotes the wrong way round.
"""

import json
import re
from typing import Annotated, NamedTuple

import msgspec

TIMESTAMP_END_MS = 4_102_444_800_000
Text = Annotated[str, msgspec.Meta(min_length=1)]
Timestamp = Annotated[int, msgspec.Meta(ge=0, lt=TIMESTAMP_END_MS)]
_AT = re.compile(r"^(?P<what>.*?) - at `(?P<key>key in )?\$\.?(?P<path>[^`]*)`$")
_NOT_JSON = {"Input data was truncated": "cut short"}


class Measurement(msgspec.Struct, gc=False, frozen=True):
    """A record's value; the labels stay as they were written, since few sets of them ever differ."""

    name: Text
    value: float
    timestamp: Timestamp
    client: Text
    labels: msgspec.Raw = msgspec.Raw(b"{}")


class Series(NamedTuple):
    """One name with one set of labels."""

    name: str
    labels: dict[str, str]

    @property
    def text(self) -> str:
        labels = json.dumps(self.labels, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
        return self.name + labels

    @classmethod
    def parse(cls, text: str) -> "Series":
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
decode_labels = msgspec.json.Decoder(dict[str, str]).decode


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
