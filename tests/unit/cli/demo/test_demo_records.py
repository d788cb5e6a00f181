import itertools
import json

import pytest

from penstock.cli.demo.engine.batches import BATCH_RECORDS, endless_batches, share_out
from penstock.cli.demo.engine.ledger import DemoFailed, Ledger
from penstock.cli.demo.series import HOSTS, records
from penstock.client.load.fleet import SHAPES
from penstock.core.records import Record, check_batches, read_records

START_MS = 1_700_000_000_000


def unwatched(step: int) -> None:
    pass


def ledger_of(*members: Record) -> Ledger:
    ledger = Ledger()
    for member in members:
        ledger.note(member)
    return ledger


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


def test_batches_hold_all_measurements_once_and_keep_a_series_in_its_partition() -> None:
    shares = share_out(1_234, 4, START_MS, unwatched)

    series_keys = []
    for share in shares:
        members = [r for batch in share.batches for r in read_records(batch.content)]
        share.sent.check(ledger_of(*members), "a partition")
        assert all(len(check_batches(batch.content)) == 1 for batch in share.batches)
        series_keys.append({member.key for member in members})
    assert sum(len(share.sent) for share in shares) == 1_234
    assert sum(len(keys) for keys in series_keys) == HOSTS * len(SHAPES)


def test_a_writer_that_goes_on_for_ever_writes_the_same_measurements() -> None:
    batches = list(itertools.islice(endless_batches(START_MS), 3))

    assert list(itertools.chain(*batches)) == list(records(3 * BATCH_RECORDS, START_MS))


@pytest.mark.parametrize(
    "changed",
    [
        [Record(0, 1, b"k", b"a", ())],
        [Record(0, 1, b"k", b"b", ()), Record(1, 1, b"k", b"a", ())],
        [Record(0, 1, b"k", b"a", ()), Record(1, 2, b"k", b"b", ())],
        [Record(0, 1, b"k", b"a", ()), Record(1, 1, b"kb", b"", ())],
    ],
    ids=["lost", "reordered", "other time", "shifted"],
)
def test_any_difference_from_what_was_sent_is_noticed(changed: list[Record]) -> None:
    sent = ledger_of(Record(0, 1, b"k", b"a", ()), Record(1, 1, b"k", b"b", ()))

    with pytest.raises(DemoFailed):
        sent.check(ledger_of(*changed), "a partition")


def test_the_first_record_at_a_time_is_known() -> None:
    sent = ledger_of(*(Record(0, timestamp, b"", b"", ()) for timestamp in (5, 7, 7, 9)))

    assert [sent.first_at(timestamp) for timestamp in (4, 5, 6, 7, 8, 9)] == [0, 0, 1, 1, 3, 3]
