"""What a node says about itself: events for people, metrics for dashboards.

Events (`events`) have a fixed dotted name and fields:

    log.warning("replica.left_isr", partition=partition, replica=3, lag_ms=1200)

    2026-11-15 09:22:01.123 WARNING replica.left_isr partition=orders/0 replica=3 lag_ms=1200
    {"time":"2026-11-15T09:22:01.123Z","level":"warning","event":"replica.left_isr","partition":"orders/0",…}

`log` is one object for the process. It writes nothing until `log.configure` is given a clock
and a sink: text for a terminal, a JSON object a line elsewhere. A level that is switched off
costs an empty call. Writing an event never raises, whatever the values are, and never
waits for a reader that has stopped: such events are dropped, counted, and reported when the
reader is back.

Metrics (`metrics`) are declared by each component in one class and counted in plain integers.
`prometheus` renders them at a scrape, and imports `prometheus_client` only then;
`reference` writes their reference page.

    class LogMetrics(Metrics):                  hot path:
        def __init__(self):
            super().__init__()                  appends = metrics.append_seconds.of("orders")   # once
            self.append_seconds = …             appends.observe(elapsed_ns)

Label sets are bounded: beyond a limit, new ones are counted under `other`, and how often
that happened is a metric too.

Left out: tracing, and the HTTP endpoint that serves the metrics (`penstock.server.http`).
"""

from penstock.observability.events import (
    DescriptorSink,
    EventLogOptions,
    EventMetrics,
    EventSink,
    LogFormat,
    LogFunction,
    LogLevel,
    log,
)
from penstock.observability.metrics import (
    Counter,
    CounterValue,
    Gauge,
    Histogram,
    HistogramSnapshot,
    HistogramValue,
    LogMetrics,
    LogReadings,
    Metrics,
)
from penstock.observability.prometheus import render, render_in_steps

__all__ = [
    "log",
    "LogLevel",
    "LogFormat",
    "EventLogOptions",
    "LogFunction",
    "EventSink",
    "DescriptorSink",
    "Metrics",
    "Counter",
    "CounterValue",
    "Gauge",
    "Histogram",
    "HistogramValue",
    "HistogramSnapshot",
    "render",
    "render_in_steps",
    "EventMetrics",
    "LogMetrics",
    "LogReadings",
]
