"""Clocks that are wrong, by Debian's libfaketime in front of the C library."""

from collections.abc import Mapping
from pathlib import Path

LIBRARIES = (
    "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1",
    "/usr/lib/aarch64-linux-gnu/faketime/libfaketimeMT.so.1",
    "/usr/lib/faketime/libfaketimeMT.so.1",
)


def library() -> str | None:
    """Where the library is; None if it is not installed."""
    return next((path for path in LIBRARIES if Path(path).exists()), None)


def wrong_by(seconds: int) -> Mapping[str, str]:
    """Variables for a process whose wall clock is off; its monotonic clock is left alone."""
    return _variables(f"{seconds:+d}s", monotonic=False)


def running_at(speed: float) -> Mapping[str, str]:
    """Variables for a process both of whose clocks run too fast, or too slow."""
    return _variables(f"+0 x{speed}", monotonic=True)


def _variables(wanted: str, *, monotonic: bool) -> Mapping[str, str]:
    path = library()
    assert path is not None, "libfaketime is not installed"
    return {
        "LD_PRELOAD": path,
        "FAKETIME": wanted,
        "FAKETIME_DONT_FAKE_MONOTONIC": "0" if monotonic else "1",
        "FAKETIME_DONT_RESET": "1",
    }
