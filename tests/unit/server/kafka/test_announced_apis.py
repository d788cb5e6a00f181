"""What Kafka 4.3 announces to clients, Penstock announces too, or it says why not.

`kafka-4.3-apis.tsv` has key, name, first and last version of each API that Kafka's brokers announce.
"""

from pathlib import Path

import pytest

from penstock.server.kafka.handlers import NOT_ANNOUNCED, every_route

ROWS = [line.split("\t") for line in (Path(__file__).parent / "kafka-4.3-apis.tsv").read_text().splitlines()]
SERVED = every_route().by_key


@pytest.mark.parametrize(("key", "name", "first", "last"), ROWS, ids=[row[1] for row in ROWS])
def test_an_api_of_kafka_is_announced_in_its_versions_or_there_is_a_reason(
    key: str, name: str, first: str, last: str
) -> None:
    route = SERVED.get(int(key))
    if route is None:
        assert name in NOT_ANNOUNCED
        return

    assert route.api.name == name
    assert name not in NOT_ANNOUNCED
    assert route.versions.start <= int(first)
    assert route.versions.stop > int(last)


def test_the_reasons_are_about_apis_of_kafka() -> None:
    assert NOT_ANNOUNCED.keys() <= {name for _, name, _, _ in ROWS}
