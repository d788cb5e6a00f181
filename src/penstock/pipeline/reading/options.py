"""What the settings of a client mean to a reader."""

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.pipeline.errors import BadOption

ROWS_MAX = 131_072
TIMEOUT_MS = 120_000
MIB = 1 << 20
_ISOLATION = {"read_uncommitted": False, "read_committed": True}


@dataclass(frozen=True, slots=True)
class ReaderOptions:
    """How to read."""

    include_headers: bool = False
    rows_max: int = ROWS_MAX
    # An Arrow batch of this size is handed on, whatever its rows.
    batch_bytes_max: int = 32 * MIB
    committed_only: bool = True
    # Large answers keep both sides busy: while one is decoded, the next is on its way.
    fetch_bytes_max: int = 8 * MIB
    wait_ms: int = 500
    request_ms: int = 30_000
    # How long a broker may stay away, or a log stand still, before a read gives up.
    timeout_ms: int = TIMEOUT_MS
    client_id: str = "penstock-pipeline"


_DEFAULTS = ReaderOptions()


def reader_options(
    settings: Mapping[str, str], *, include_headers: bool, rows_max: int, timeout_ms: int
) -> ReaderOptions:
    """The options that `settings` (librdkafka's names) amount to; BadOption for what they cannot be."""
    if rows_max < 1:
        raise BadOption("rows_max", f"{rows_max} is not a positive number of rows")
    fetch_bytes = _number(settings, "fetch.max.bytes", _DEFAULTS.fetch_bytes_max)
    partition_bytes = _number(settings, "max.partition.fetch.bytes", fetch_bytes)
    return ReaderOptions(
        include_headers=include_headers,
        rows_max=rows_max,
        committed_only=_committed_only(settings),
        fetch_bytes_max=min(fetch_bytes, partition_bytes),
        wait_ms=_number(settings, "fetch.wait.max.ms", _DEFAULTS.wait_ms),
        request_ms=_number(settings, "socket.timeout.ms", _DEFAULTS.request_ms),
        timeout_ms=timeout_ms,
        client_id=settings.get("client.id", _DEFAULTS.client_id),
    )


def _committed_only(settings: Mapping[str, str]) -> bool:
    level = settings.get("isolation.level", "read_committed")
    if level.lower() not in _ISOLATION:
        raise BadOption("kafka.isolation.level", f"{level!r} is neither read_committed nor read_uncommitted")
    return _ISOLATION[level.lower()]


def _number(settings: Mapping[str, str], name: str, default: int) -> int:
    text = settings.get(name)
    if text is None:
        return default
    if not text.strip().isdigit() or not 0 < int(text) < 1 << 31:
        raise BadOption(f"kafka.{name}", f"{text!r} is not a positive number")
    return int(text)
