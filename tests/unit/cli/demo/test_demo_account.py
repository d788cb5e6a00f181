import pytest

from penstock.cli import demo
from penstock.cli.demo import DemoFailed, RecordDigests

RECORDS = [(number % 3, b"k%d" % number, b"v" * number, number) for number in range(50)]


def account_of(records: list[tuple[int, bytes, bytes, int]]) -> RecordDigests:
    made = RecordDigests(3)
    for record in records:
        made.note(*record)
    return made


def test_the_same_records_make_the_same_account(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = account_of(RECORDS)
    monkeypatch.setattr(demo, "FLUSH_PIECES", 5)

    sent.check(account_of(RECORDS))

    assert sent.records == 50


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        (RECORDS[:-1], r"partition 1: 16 records came back instead of 17"),
        ([*RECORDS[:-1], (1, b"k49", b"v" * 49, 50)], "partition 1: what came back differs"),
        ([*RECORDS[:-1], (1, b"k49v", b"v" * 48, 49)], "partition 1: what came back differs"),
        ([RECORDS[3], *RECORDS[1:3], RECORDS[0], *RECORDS[4:]], "partition 0: what came back differs"),
    ],
    ids=["lost", "time", "border", "order"],
)
def test_every_difference_is_found(changed: list[tuple[int, bytes, bytes, int]], complaint: str) -> None:
    with pytest.raises(DemoFailed, match=complaint):
        account_of(RECORDS).check(account_of(changed))
