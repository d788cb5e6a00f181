"""Which reader serves which settings."""

from collections.abc import Mapping

from penstock.pipeline.reading.options import ROWS_MAX, TIMEOUT_MS, reader_options
from penstock.pipeline.reading.spans import SpanReader


def open_reader(
    settings: Mapping[str, str],
    *,
    include_headers: bool = False,
    rows_max: int = ROWS_MAX,
    timeout_ms: int = TIMEOUT_MS,
) -> SpanReader:
    """A reader for these settings (librdkafka's names); it connects when it is first used.

    Plain connections are read by our own reader, everything else by librdkafka.
    """
    options = reader_options(
        settings, include_headers=include_headers, rows_max=rows_max, timeout_ms=timeout_ms
    )
    if settings.get("security.protocol", "plaintext").lower() == "plaintext":
        from penstock.pipeline.reading.wire import WireReader

        return WireReader(settings["bootstrap.servers"], options)
    from penstock.pipeline.reading.client import ClientReader

    return ClientReader(settings, options)
