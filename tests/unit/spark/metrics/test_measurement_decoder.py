import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.spark.metrics.measurement import MeasurementDecoder, MetricSeries
from tests.unit.spark.metrics.reference import measured

GOOD = {"name": "cpu", "value": 1.5, "labels": {"host": "a"}, "timestamp": 1_700_000_000_000, "client": "c"}

RECORDED_MS = 1_700_000_000_500
AHEAD_MS = 48 * 3_600_000

ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**25), 10**25)
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(
        [0, 1_700_000_000_000, 1_700_172_800_500, 1_700_172_800_501, 4_102_444_799_999, 4_102_444_800_000]
    )
    | st.sampled_from([1e400, "", "NaN", "1"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@st.composite
def contents(draw: st.DrawFn) -> bytes | None:
    """A good record, spoiled in one or two ways or not at all."""
    found: dict[str, Any] = dict(GOOD)
    for key in draw(st.lists(st.sampled_from([*GOOD, "more"]), max_size=2)):
        if draw(st.booleans()):
            found[key] = draw(ANYTHING)
        else:
            found.pop(key, None)
    text = json.dumps(found, ensure_ascii=draw(st.booleans())).encode("utf-8", "surrogatepass")
    match draw(st.integers(0, 9)):
        case 0:
            at = draw(st.integers(0, len(text)))
            return text[:at] + draw(st.binary(min_size=1, max_size=3)) + text[at:]
        case 1:
            return text[: draw(st.integers(0, len(text)))]
        case 2:
            return text + draw(st.sampled_from([b" ", b"\n", b"x", b"{}", b","]))
        case 3:
            return draw(st.sampled_from([None, b"", b"null", b"[]", b"5", b'"a"', b"{}", b"[" + text + b"]"]))
        case _:
            return text


def decoded(
    *values: bytes | None, watermark_ms: int = -1, recorded_ms: int = RECORDED_MS
) -> list[dict[str, Any]]:
    moment = pa.timestamp("us", tz="UTC")
    records = pa.record_batch(
        {
            "key": pa.array([b"k"] * len(values), pa.binary()),
            "value": pa.array(values, pa.binary()),
            "topic": pa.array(["in"] * len(values)),
            "partition": pa.array([3] * len(values), pa.int32()),
            "offset": pa.array(range(10, 10 + len(values)), pa.int64()),
            "timestamp": pa.array([recorded_ms * 1_000] * len(values), moment),
        }
    )
    rows: list[dict[str, Any]] = MeasurementDecoder(watermark_ms, AHEAD_MS).decode(records).to_pylist()
    return rows


def content(**changes: Any) -> bytes:
    return json.dumps(GOOD | changes).encode()


@given(st.lists(contents(), min_size=1, max_size=5))
@example([b'{"name":"a","value":1,"timestamp":5,"client":"x","more":"\xff"}'])
@example([content(value=10**400), content(value=True), content(timestamp=True), content(timestamp=5.0)])
@example(
    [content(name="\ud800"), content(labels={"\ud800": "a"}), content(labels=None), content(labels={"a": 1})]
)
@example([b'{"name":"a","name":"b","value":1,"timestamp":5,"client":"x","labels":{"l":"1","l":"2"}}'])
def test_good_and_malformed_are_told_apart_exactly_by_the_rules(values: list[bytes | None]) -> None:
    rows = decoded(*values)

    for value, row in zip(values, rows, strict=True):
        expected = measured(value, RECORDED_MS + AHEAD_MS)
        assert (row["error"] is None) == (expected is not None), (value, row["error"])
        if expected is not None:
            assert row["series"] == MetricSeries(expected.name, expected.labels).text
            assert (row["value"], row["client"]) == (expected.value, expected.client)
            assert round(row["timestamp"].timestamp() * 1_000) == expected.timestamp


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "no value"),
        (b"", "empty value"),
        (b"{", "not JSON: cut short"),
        (b"\xff", "not UTF-8"),
        (b"[]", "Expected object, got array"),
        (content(name=""), "name: Expected str of length >= 1"),
        (content(value="1"), "value: Expected float, got str"),
        (content(timestamp=-1), "timestamp: Expected int >= 0"),
        (content(labels=[]), "labels: Expected object, got array"),
        (b'{"name":"a"}', "Object missing required field value"),
    ],
)
def test_a_malformed_record_says_why_in_a_phrase(value: bytes | None, reason: str) -> None:
    (row,) = decoded(value)

    assert row["error"] == reason


def test_a_malformed_row_keeps_its_bytes_under_an_identity_of_its_own_and_just_after_the_watermark() -> None:
    _, row = decoded(content(), b"oops", watermark_ms=5_000)

    assert (row["raw"], row["key"]) == (b"oops", b"k")
    assert (row["series"], row["client"]) == ("in/3/11", "")
    assert row["timestamp"].timestamp() == 5.001


def test_what_is_not_newer_than_the_watermark_is_late_and_keeps_its_bytes() -> None:
    late, just_in_time = decoded(content(timestamp=5_000), content(timestamp=5_001), watermark_ms=5_000)

    assert late["error"] == "late: 5000 is not after the watermark 5000"
    assert late["raw"] == content(timestamp=5_000)
    assert late["timestamp"].timestamp() == 5.001
    assert just_in_time["error"] is None


def test_what_is_too_far_ahead_of_its_own_record_is_malformed_and_does_not_move_the_watermark() -> None:
    last = RECORDED_MS + AHEAD_MS

    far, within = decoded(content(timestamp=last + 1), content(timestamp=last), watermark_ms=5_000)

    assert (
        far["error"] == f"ahead: {last + 1} is more than {AHEAD_MS} ms after the record's time {RECORDED_MS}"
    )
    assert far["raw"] == content(timestamp=last + 1)
    assert far["timestamp"].timestamp() == 5.001
    assert within["error"] is None


def test_nothing_is_ahead_of_a_record_that_has_no_time() -> None:
    (row,) = decoded(content(), recorded_ms=-1)

    assert row["error"] is None


def test_one_series_is_one_text_however_its_labels_are_written() -> None:
    rows = decoded(
        b'{"name":"a","value":1,"timestamp":5,"client":"x","labels":{"p":"1","q":"2"}}',
        b'{"name":"a","value":1,"timestamp":5,"client":"x","labels":{ "q" : "2", "p":"\\u0031"}}',
        b'{"name":"a","value":1,"timestamp":5,"client":"x"}',
        b'{"name":"a","value":1,"timestamp":5,"client":"x","labels":{}}',
    )

    assert [row["series"] for row in rows] == ['a{"p":"1","q":"2"}'] * 2 + ["a{}"] * 2
