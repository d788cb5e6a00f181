"""The event log: named events with fields, as text or as JSON lines."""

import enum
import json
import math
import os
import select
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from typing import Protocol

from penstock.observability.metrics import CounterValue, Metrics

# A pipe takes this much at once or not at all (POSIX PIPE_BUF): a line is never torn, not
# even between processes that share the pipe, and a writable pipe has room for it.
LINE_BYTES_MAX = 4_096
# How long a burst may wait for a slow reader, once; after that its events are dropped.
PATIENCE_MS = 10
STRING_LENGTH_MAX = 1_000
BYTES_SHOWN_MAX = 64
ITEMS_MAX = 20
DEPTH_MAX = 3
# JSON readers in other languages lose precision beyond this.
_EXACT_INTEGER_MAX = 2**53
Plain = str | int | float | bool | None | list["Plain"] | dict[str, "Plain"]
# Names that every line has already; a field called like one gets an underscore.
_RESERVED = frozenset({"time", "level", "event", "truncated"})


class EventSink(Protocol):
    """Takes one encoded line; False means that it was dropped. Never raises."""

    def write(self, line: bytes) -> bool: ...

    @property
    def is_terminal(self) -> bool: ...


class DescriptorSink:
    """A file descriptor, usually stderr.

    Polled before a line is written: a terminal stopped with Ctrl-S or a pipe whose reader
    hangs would otherwise block the event loop. Switching the descriptor to non-blocking is
    no way out, because other processes share it.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)
        self._stalled = False

    @property
    def is_terminal(self) -> bool:
        return os.isatty(self._descriptor)

    def write(self, line: bytes) -> bool:
        try:
            if not self._poll.poll(0 if self._stalled else PATIENCE_MS):
                self._stalled = True
                return False
            self._stalled = False
            return os.write(self._descriptor, line) == len(line)
        except OSError:
            return False


def plain(value: object, depth: int = 0) -> Plain:
    """The value as something JSON knows."""
    if value is None or isinstance(value, bool):
        return value
    kind = type(value)
    if kind is int:
        return value if -_EXACT_INTEGER_MAX <= value <= _EXACT_INTEGER_MAX else _text(value)  # type: ignore[operator,return-value]
    if kind is float:
        return value if math.isfinite(value) else _text(value)  # type: ignore[arg-type,return-value]
    if kind is str:
        return _short(value)  # type: ignore[arg-type]
    return _compound(value, depth)


def _compound(value: object, depth: int) -> Plain:
    if isinstance(value, bytes | bytearray | memoryview):
        return _bytes(value)
    if isinstance(value, BaseException):
        return _short(f"{type(value).__name__}: {_text(value)}{_raised_at(value)}")
    if isinstance(value, Enum):
        return _short(value.name.lower())
    # A named tuple or a subclass of str or int is written with its own `__str__`.
    if type(value) in (list, tuple, set, frozenset) and depth < DEPTH_MAX:
        items: list[object] = list(value)  # type: ignore[call-overload]
        shown = [plain(item, depth + 1) for item in items[:ITEMS_MAX]]
        return [*shown, f"… {len(items) - ITEMS_MAX} more"] if len(items) > ITEMS_MAX else shown
    if isinstance(value, Mapping) and depth < DEPTH_MAX:
        pairs = list(value.items())[:ITEMS_MAX]
        return {_text(key): plain(item, depth + 1) for key, item in pairs}
    return _text(value)


def _raised_at(error: BaseException) -> str:
    """The innermost frame: what one wants first of a traceback, on one line."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return ""
    code = trace.tb_frame.f_code
    return f" [{code.co_filename.rpartition('/')[2]}:{trace.tb_lineno} in {code.co_name}]"


def _bytes(value: bytes | bytearray | memoryview) -> str:
    """Readable bytes as text, others in hex: keys and ids are often one or the other."""
    head = bytes(value[:BYTES_SHOWN_MAX])
    more = f"… {len(value)} bytes" if len(value) > BYTES_SHOWN_MAX else ""
    if head.isascii() and head.decode("ascii").isprintable():
        return head.decode("ascii") + more
    return "0x" + head.hex() + more


def _text(value: object) -> str:
    try:
        return _short(str(value))
    except Exception as error:
        # A broken __str__ must not take down the code that wanted to report something.
        return f"<{type(value).__name__}: {type(error).__name__} when printed>"


def _short(text: str) -> str:
    if len(text) > STRING_LENGTH_MAX:
        return f"{text[:STRING_LENGTH_MAX]}… {len(text)} characters"
    return text


class LogLevel(enum.IntEnum):
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
class EventLogOptions:
    """What is written, in which form, and what every event says besides (the node's id)."""

    level: LogLevel = LogLevel.INFO
    format: LogFormat = LogFormat.AUTO
    context: Mapping[str, object] = field(default_factory=dict)


class LogFunction(Protocol):
    """Reports one event: a fixed dotted name, and what varies as fields."""

    def __call__(self, name: str, /, **fields: object) -> None: ...


class EventLog:
    """Four functions, one per level, each of which is empty while its level is off.

    They are attributes that `configure` replaces, so that an event of a level that is off costs
    a call and no comparison. Keep a reference to the log itself, never to one of its functions.
    """

    debug: LogFunction
    info: LogFunction
    warning: LogFunction
    error: LogFunction

    def __init__(self) -> None:
        self.written = {level: CounterValue() for level in LogLevel}
        self.dropped = CounterValue()
        self._owned_up = 0
        self.silence()

    def silence(self) -> None:
        """Write nothing any more."""
        for level in LogLevel:
            setattr(self, level.name.lower(), _nothing)

    def configure(self, options: EventLogOptions, sink: EventSink, wall: Callable[[], int]) -> None:
        """Write to `sink` from now on; `wall` tells the time in milliseconds since 1970."""
        as_text = options.format is LogFormat.TEXT or (options.format is LogFormat.AUTO and sink.is_terminal)
        encode = text_line if as_text else json_line
        context = {key: plain(value) for key, value in options.context.items()}
        for level in LogLevel:
            wanted = level >= options.level
            event = self._event(level, encode, context, sink, wall) if wanted else _nothing
            setattr(self, level.name.lower(), event)

    def _event(
        self,
        level: LogLevel,
        encode: "Encode",
        context: Mapping[str, Plain],
        sink: EventSink,
        wall: Callable[[], int],
    ) -> LogFunction:
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


Encode = Callable[[int, LogLevel, str, Mapping[str, Plain]], bytes]


def json_line(time_ms: int, level: LogLevel, name: str, fields: Mapping[str, Plain]) -> bytes:
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


def text_line(time_ms: int, level: LogLevel, name: str, fields: Mapping[str, Plain]) -> bytes:
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


class EventMetrics(Metrics):
    """How many events were written, and how many were dropped because no reader took them."""

    def __init__(self, events: EventLog = log) -> None:
        super().__init__()
        self.written = self.counter("penstock_events_total", "Log events written.", ("level",))
        self.dropped = self.counter("penstock_events_dropped_total", "Log events that no reader took.")
        for level, tally in events.written.items():
            self.written.adopt(tally, level.name.lower())
        self.dropped.adopt(events.dropped)
