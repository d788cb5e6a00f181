"""Making any value fit to be written: bounded, printable, and never an exception."""

import math
from collections.abc import Mapping
from enum import Enum

STRING_LENGTH_MAX = 1_000
BYTES_SHOWN_MAX = 64
ITEMS_MAX = 20
DEPTH_MAX = 3
# JSON readers in other languages lose precision beyond this.
_EXACT_INTEGER_MAX = 2**53
Plain = str | int | float | bool | None | list["Plain"] | dict[str, "Plain"]


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
    # A named tuple or a subclass of str or int knows how it wants to be written.
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
