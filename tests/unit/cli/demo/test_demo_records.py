import itertools
import json

from penstock.cli.demo import HOSTS, records
from penstock.client.load import SHAPES

START_MS = 1_700_000_000_000


def test_measurements_look_like_those_of_a_fleet_and_are_the_same_every_time() -> None:
    made = list(records(HOSTS * len(SHAPES) * 2, START_MS))

    assert made == list(records(HOSTS * len(SHAPES) * 2, START_MS))
    measurement = json.loads(made[-1].value or b"")
    assert measurement.keys() == {"name", "value", "labels", "timestamp", "client"}
    assert measurement["labels"].keys() == {"host", "region", "service"}
    assert measurement["timestamp"] == made[-1].timestamp == START_MS + 1_000
    assert len({(m["name"], m["client"]) for m in (json.loads(r.value or b"") for r in made)}) == HOSTS * len(
        SHAPES
    )


def test_a_counter_only_goes_up() -> None:
    parsed = [json.loads(record.value or b"") for record in records(5_000, START_MS)]

    counted = [m["value"] for m in parsed if m["name"] == "http_requests_total" and m["client"] == "agent-03"]

    assert len(counted) > 50
    assert all(low <= high for low, high in itertools.pairwise(counted))
