"""The figures of the event log itself: whether anybody should have looked, and missed it."""

from penstock.observability.events import EventLog, log
from penstock.observability.metrics import Metrics


class EventMetrics(Metrics):
    """How many events were written, and how many nobody could take."""

    def __init__(self, events: EventLog = log) -> None:
        super().__init__()
        self.written = self.counter("penstock_events_total", "Log events written.", ("level",))
        self.dropped = self.counter("penstock_events_dropped_total", "Log events that no reader took.")
        for level, tally in events.written.items():
            self.written.adopt(tally, level.name.lower())
        self.dropped.adopt(events.dropped)
