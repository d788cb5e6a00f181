import json

from penstock.cli.consume import as_json_line, as_line
from penstock.client import ConsumedRecord


def test_a_line_is_the_value_or_key_and_value() -> None:
    record = ConsumedRecord(0, 1, None, b"k", b"v", ())
    tombstone = ConsumedRecord(0, 1, None, None, None, ())

    assert as_line(record, None) == b"v\n"
    assert as_line(record, b"\t") == b"k\tv\n"
    assert (as_line(tombstone, None), as_line(tombstone, b":")) == (b"\n", b":\n")


def test_json_tells_missing_from_empty_and_bytes_from_text() -> None:
    headers = (("a", b"1"), ("b", None), ("c", b"\xff"))
    record = ConsumedRecord(3, 7, 1_000, None, b"", headers)

    line = as_json_line("t", record)

    assert line.endswith(b"}\n")
    assert json.loads(line) == {
        "topic": "t",
        "partition": 3,
        "offset": 7,
        "timestamp_ms": 1_000,
        "key": None,
        "value": "",
        "headers": [
            {"name": "a", "value": "1"},
            {"name": "b", "value": None},
            {"name": "c", "value_base64": "/w=="},
        ],
    }
