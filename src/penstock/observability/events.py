"""The event log: named events with fields, as text or as JSON lines."""

import enum
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Protocol

from penstock.observability.figures import Tally
from penstock.observability.sinks import LINE_BYTES_MAX, Sink
from penstock.observability.values import Plain, plain

# Names that every line has already; a field called like one gets an underscore.
_RESERVED = frozenset({"time", "level", "event", "truncated"})


class Level(enum.IntEnum):
    """How much an event matters."""

    DEBUG = 10
    INFO = 20
    WARNING = 30
    ERROR = 40


class LogFormat(enum.Enum):
    """How events are written; AUTO is text on a terminal and JSON elsewhere."""

    AUTO = "auto"
    TEXT = "text"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class LogOptions:
    """What is written, in which form, and what every event says besides (the node's id)."""

    level: Level = Level.INFO
    format: LogFormat = LogFormat.AUTO
    context: Mapping[str, object] = field(default_factory=dict)


class Event(Protocol):
    """Reports one event: a fixed dotted name, and what varies as fields."""

    def __call__(self, name: str, /, **fields: object) -> None: ...


class EventLog:
    """Four functions, one per level, each of which is empty while its level is off.

    They are attributes that `configure` replaces, so that an event nobody wants costs a call
    and no comparison. Take the log itself along, never one of its functions.
    """

    debug: Event
    info: Event
    warning: Event
    error: Event

    def __init__(self) -> None:
        self.written = {level: Tally() for level in Level}
        self.dropped = Tally()
        self._owned_up = 0
        self.silence()

    def silence(self) -> None:
        """Write nothing any more."""
        for level in Level:
            setattr(self, level.name.lower(), _nothing)

    def configure(self, options: LogOptions, sink: Sink, wall: Callable[[], int]) -> None:
        """Write to `sink` from now on; `wall` tells the time in milliseconds since 1970."""
        as_text = options.format is LogFormat.TEXT or (options.format is LogFormat.AUTO and sink.is_terminal)
        encode = text_line if as_text else json_line
        context = {key: plain(value) for key, value in options.context.items()}
        for level in Level:
            wanted = level >= options.level
            event = self._event(level, encode, context, sink, wall) if wanted else _nothing
            setattr(self, level.name.lower(), event)

    def _event(
        self,
        level: Level,
        encode: "Encode",
        context: Mapping[str, Plain],
        sink: Sink,
        wall: Callable[[], int],
    ) -> Event:
        written = self.written[level]

        def write(name: str, fields: Mapping[str, Plain]) -> bool:
            return sink.write(encode(wall(), level, name, fields))

        def event(name: str, /, **fields: object) -> None:
            shown = {_free(key): plain(value) for key, value in fields.items()}
            if not write(name, {**context, **shown}):
                self.dropped.count += 1
                return
            written.count += 1
            lost = self.dropped.count - self._owned_up
            if lost and write("log.events_dropped", {**context, "events": lost}):
                self._owned_up += lost

        return event


Encode = Callable[[int, Level, str, Mapping[str, Plain]], bytes]


def json_line(time_ms: int, level: Level, name: str, fields: Mapping[str, Plain]) -> bytes:
    """One JSON object and a newline, of a size that one write takes whole."""
    head: dict[str, Plain] = {"time": _moment(time_ms) + "Z", "level": level.name.lower(), "event": name}
    line = _encode({**head, **fields})
    if len(line) < LINE_BYTES_MAX:
        return line + b"\n"
    kept: dict[str, Plain] = {**head, "truncated": True}
    room = LINE_BYTES_MAX - len(_encode(kept)) - 1
    for key, value in fields.items():
        # The fields that fit, in order: cutting the line itself would not leave JSON.
        needed = len(_encode({key: value}))
        if needed < room:
            kept[key] = value
            room -= needed
    return _encode(kept) + b"\n"


def text_line(time_ms: int, level: Level, name: str, fields: Mapping[str, Plain]) -> bytes:
    """One line for a person's eyes."""
    shown = " ".join(f"{key}={_readable(value)}" for key, value in fields.items())
    line = f"{_moment(time_ms).replace('T', ' ')} {level.name:<7} {name} {shown}".rstrip()
    encoded = line.encode(errors="backslashreplace")
    if len(encoded) >= LINE_BYTES_MAX:
        encoded = encoded[: LINE_BYTES_MAX - 4].decode(errors="ignore").encode() + b"..."
    return encoded + b"\n"


def _encode(members: Mapping[str, Plain]) -> bytes:
    return json.dumps(members, separators=(",", ":"), allow_nan=False).encode("ascii")


def _readable(value: Plain) -> str:
    # Quoted as soon as it could be mistaken for the next field, or for the next line.
    if isinstance(value, str) and value.isprintable() and value and not set(value) & set(' "='):
        return value
    return json.dumps(value, ensure_ascii=isinstance(value, str) and not value.isprintable())


def _moment(time_ms: int) -> str:
    try:
        moment = datetime.fromtimestamp(time_ms / 1_000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(time_ms)
    return moment.replace(tzinfo=None).isoformat(timespec="milliseconds")


def _free(key: str) -> str:
    return f"{key}_" if key in _RESERVED else key


def _nothing(name: str, /, **fields: object) -> None:
    """What an event does while its level is off."""


log = EventLog()
