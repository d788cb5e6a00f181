"""The page of all metrics: made in slices, once for all who ask."""

from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from penstock.core.model import MICROSECOND, MILLISECOND
from penstock.node.metrics import GOOD_TIMES, MetricsPage
from penstock.observability import Metrics
from penstock.server.http import HttpResponse
from tests.support.manual_runtime import HandTimers
from tests.unit.broker.produce_and_fetch.conftest import Bench

SETS = 2_000
READING_NS = 20 * MICROSECOND


class SlowMetrics(Metrics):
    """Many gauges, each of which takes a while to read, and a histogram."""

    def __init__(self, clock: HandTimers) -> None:
        super().__init__()
        self.readings = 0
        self._clock = clock
        gauge = self.gauge("slow_gauge", "Slow.", ("number",))
        histogram = self.seconds("slow_seconds", "Slow.", ("number",))
        for number in range(SETS):
            gauge.read(self._read, number)
        for number in range(100):
            histogram.of(number).observe(number)

    def _read(self) -> float:
        self._clock.instant += READING_NS
        self.readings += 1
        return self.readings


class Scraped:
    """A page, and what is done for it."""

    def __init__(self) -> None:
        self.clock = HandTimers()
        self.metrics = SlowMetrics(self.clock)
        self.work: list[Iterator[None]] = []
        self.page = MetricsPage(Bench().backend.partitions, [self.metrics], self.clock, self.work.append)
        self.got: list[HttpResponse] = []

    def ask(self) -> None:
        answer = self.page()
        if isinstance(answer, HttpResponse):
            self.got.append(answer)
        else:
            answer(self.got.append)

    def finish(self) -> list[int]:
        """How long each slice took."""
        taken, began = [], self.clock.instant
        for _ in self.work.pop():
            taken.append(self.clock.instant - began)
            began = self.clock.instant
        return taken


@pytest.fixture
def scraped() -> Scraped:
    return Scraped()


def test_a_large_page_is_made_in_slices_and_has_everything(scraped: Scraped) -> None:
    scraped.ask()
    assert scraped.got == []

    slices = scraped.finish()

    assert max(slices) <= 2 * MILLISECOND
    (answer,) = scraped.got
    found = {family.name: family for family in text_string_to_metric_families(answer.body.decode())}
    assert len(found["slow_gauge"].samples) == SETS
    assert {sample.labels["number"] for sample in found["slow_seconds"].samples} == {
        str(number) for number in range(100)
    }
    assert answer.body.count(b"# TYPE slow_gauge gauge") == 1
    assert "penstock_partition_leader" in found


def test_all_who_ask_meanwhile_get_the_same_page(scraped: Scraped) -> None:
    for _ in range(5):
        scraped.ask()

    scraped.finish()

    assert scraped.work == []
    assert len(scraped.got) == 5
    assert scraped.metrics.readings == SETS


def test_a_page_that_took_long_is_good_for_a_while(scraped: Scraped) -> None:
    scraped.ask()
    scraped.finish()

    scraped.clock.instant += (GOOD_TIMES - 1) * SETS * READING_NS
    scraped.ask()
    assert scraped.work == []
    scraped.clock.instant += 2 * SETS * READING_NS
    scraped.ask()
    scraped.finish()

    assert [answer == scraped.got[0] for answer in scraped.got] == [True, True, False]
