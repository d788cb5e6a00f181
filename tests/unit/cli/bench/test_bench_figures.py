import os

import pytest

from penstock.cli.bench.compare import better
from penstock.cli.bench.report import percentiles_us, rates
from penstock.cli.bench.scenarios import InvalidPeer, parse_peer


def test_percentiles_are_values_that_occurred() -> None:
    found = percentiles_us([number * 1_000 for number in range(1, 1_001)])

    assert found == {"p50_us": 501, "p90_us": 901, "p99_us": 991, "p999_us": 1_000, "max_us": 1_000}


@pytest.mark.parametrize("values", [[7_000], [7_000, 7_000]])
def test_few_values_have_percentiles_too(values: list[int]) -> None:
    assert set(percentiles_us(values).values()) == {7.0}


def test_nothing_has_no_percentiles() -> None:
    assert percentiles_us([]) == {}


def test_rates_are_per_second() -> None:
    assert rates(1_000, 500, 500_000_000) == {"messages_per_s": 2_000, "mb_per_s": 1.0}


def test_a_ratio_says_how_many_times_better_whichever_way_is_good() -> None:
    assert better("messages_per_s", 200, 100) == 2
    assert better("p99_us", 200, 100) == 0.5
    assert better("p99_us", 200, None) is None
    assert better("broker_cpu_us_per_produce", 0, 100) is None


def test_a_peer_may_have_a_name_and_a_process() -> None:
    plain, named, known = (
        parse_peer("h:1"),
        parse_peer("kafka=h:1"),
        parse_peer(f"kafka=h:1@{os.getpid()}"),
    )

    assert (plain.name, plain.endpoint.bootstrap, plain.pid) == ("h:1", "h:1", None)
    assert (named.name, named.endpoint.bootstrap) == ("kafka", "h:1")
    assert known.pid == os.getpid()


@pytest.mark.parametrize("text", ["", "kafka=", "kafka=h:1@", "kafka=h:1@x", "kafka=h:1@0"])
def test_what_is_no_peer_is_refused(text: str) -> None:
    with pytest.raises(InvalidPeer):
        parse_peer(text)
