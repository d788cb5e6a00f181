import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import StructType

from penstock.spark.errors import SparkOptionError
from penstock.spark.formats import columns, decoded_schema, decoder, format_options, is_decoded
from penstock.spark.formats.schema import parse_ddl, to_ddl

DDL = (
    "name STRING, value DOUBLE, labels MAP<STRING, STRING>, n INT, big BIGINT, tiny TINYINT, ok BOOLEAN, "
    "price DECIMAL(6,2), day DATE, at TIMESTAMP, list ARRAY<INT>, "
    "inner STRUCT<a: INT, deep: ARRAY<STRUCT<b: STRING>>>"
)
TOPIC = parse_ddl("key STRING, value STRING, offset BIGINT")


def no_sample(count: int) -> list[bytes | None]:
    raise AssertionError("no sample was needed")


def decode(values: list[bytes | None], ddl: str = DDL, **options: str) -> pa.RecordBatch:
    given = {"valueFormat": "json", "valueSchema": ddl, **options}
    schema = decoded_schema(TOPIC, columns(given, no_sample))
    batch = pa.RecordBatch.from_pydict(
        {
            "key": pa.array([str(number) for number in range(len(values))]),
            "value": pa.array(values, pa.binary()),
            "offset": pa.array(range(len(values)), pa.int64()),
        }
    )
    return decoder(given, schema)(batch)


def one(value: bytes | None, ddl: str = DDL, **options: str) -> tuple[Any, str | None, bytes | None]:
    row = decode([value], ddl, **options).to_pylist(maps_as_pydicts="strict")[0]
    return row["value"], row["_error"], row["_raw"]


def test_a_value_becomes_columns_and_the_origin_stays() -> None:
    whole = {
        "name": "cpu",
        "value": 1,
        "labels": {"a": "b", "c": None},
        "n": -5,
        "big": 2**62,
        "tiny": 127,
        "ok": True,
        "price": "12.50",
        "day": "2026-02-28",
        "at": 1_700_000_000_123,
        "list": [1, None, 3],
        "inner": {"a": None, "deep": [{"b": "x"}, None, {}]},
        "unknown": {"left": "alone"},
    }

    batch = decode([json.dumps(whole).encode()])

    row = batch.to_pylist(maps_as_pydicts="strict")[0]
    assert (row["key"], row["offset"], row["_error"], row["_raw"]) == ("0", 0, None, None)
    assert row["value"] == {
        "name": "cpu",
        "value": 1.0,
        "labels": {"a": "b", "c": None},
        "n": -5,
        "big": 2**62,
        "tiny": 127,
        "ok": True,
        "price": Decimal("12.50"),
        "day": date(2026, 2, 28),
        "at": datetime(2023, 11, 14, 22, 13, 20, 123_000, UTC),
        "list": [1, None, 3],
        "inner": {"a": None, "deep": [{"b": "x"}, None, {"b": None}]},
    }


def test_missing_fields_and_nulls_are_null_and_a_tombstone_is_no_error() -> None:
    nothing = dict.fromkeys(parse_ddl(DDL).names)

    assert one(b"{}") == (nothing, None, None)
    assert one(b'{"name":null,"labels":null,"inner":null}') == (nothing, None, None)
    assert one(None) == (None, None, None)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"", "truncated"),
        (b"not json", "malformed"),
        (b"[1]", "Expected `object`"),
        (b"{} {}", "trailing"),
        (b'{"name":"a\nb"}', "malformed"),
        (b'{"name":"\xff"}', "utf-8"),
        (b'{"unknown":"\xff"}', "utf-8"),
        (b'{"name":5}', "$.name"),
        (b'{"n":1.0}', "$.n"),
        (b'{"n":2147483648}', "$.n"),
        (b'{"big":9223372036854775808}', "$.big"),
        (b'{"tiny":-129}', "$.tiny"),
        (b'{"value":"1"}', "$.value"),
        (b'{"value":NaN}', "malformed"),
        (b'{"value":1e999}', "out of range"),
        (b'{"ok":1}', "$.ok"),
        (b'{"labels":{"a":1}}', "$.labels"),
        (b'{"labels":[]}', "$.labels"),
        (b'{"price":"12345.67"}', "precision"),
        (b'{"price":"1.234"}', "data loss"),
        (b'{"day":"2026-02-30"}', "$.day"),
        (b'{"at":"yesterday"}', "$.at"),
        (b'{"at":9223372036854775807}', "no time"),
        (b'{"at":-62135596800001}', "no time"),
        (b'{"list":[1,"2"]}', "$.list"),
        (b'{"inner":{"deep":[{"b":1}]}}', "$.inner.deep"),
        (b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "recursion"),
    ],
)
def test_a_value_that_is_no_good_keeps_its_bytes_and_says_why(value: bytes, why: str) -> None:
    good = b'{"name":"good"}'

    rows = decode([good, value, good]).to_pylist(maps_as_pydicts="strict")

    assert rows[1]["value"] is None
    assert rows[1]["_raw"] == value
    assert why in rows[1]["_error"]
    assert [row["value"]["name"] for row in (rows[0], rows[2])] == ["good", "good"]
    assert [(row["_error"], row["_raw"]) for row in (rows[0], rows[2])] == [(None, None)] * 2


def test_every_value_that_no_column_takes_is_found_among_many() -> None:
    values: list[bytes | None] = [b'{"price":"%d.5"}' % (number % 50) for number in range(300)]
    misfits = {3, 4, 150, 299}
    for number in misfits:
        values[number] = b'{"price":"1.2345"}'
    values[200] = b"broken"

    rows = decode(values).to_pylist()

    assert {number for number, row in enumerate(rows) if row["_error"]} == misfits | {200}
    assert all(row["value"]["price"] is not None for row in rows if not row["_error"])


def test_of_a_key_that_comes_twice_the_last_one_counts() -> None:
    assert one(b'{"a":1,"a":2}', "a INT") == ({"a": 2}, None, None)


def test_line_breaks_between_the_parts_of_a_value_do_no_harm() -> None:
    assert one(b'{\n"a":\r\n1}\n', "a INT") == ({"a": 1}, None, None)


@pytest.mark.parametrize(
    ("text", "options", "moment"),
    [
        (b'"2026-01-02T03:04:05Z"', {}, datetime(2026, 1, 2, 3, 4, 5, 0, UTC)),
        (b'"2026-01-02T03:04:05.123456+02:00"', {}, datetime(2026, 1, 2, 1, 4, 5, 123_456, UTC)),
        (b'"2026-01-02 03:04:05"', {}, datetime(2026, 1, 2, 3, 4, 5, 0, UTC)),
        (b"0", {}, datetime(1970, 1, 1, 0, 0, 0, 0, UTC)),
        (b"-1", {}, datetime(1969, 12, 31, 23, 59, 59, 999_000, UTC)),
        (b"1.5", {"valueTimestampUnit": "s"}, datetime(1970, 1, 1, 0, 0, 1, 500_000, UTC)),
        (b"7", {"valueTimestampUnit": "us"}, datetime(1970, 1, 1, 0, 0, 0, 7, UTC)),
    ],
)
def test_times_are_text_or_numbers_in_a_unit(text: bytes, options: dict[str, str], moment: datetime) -> None:
    assert one(b'{"at":' + text + b"}", "at TIMESTAMP", **options) == ({"at": moment}, None, None)


_texts = st.text(max_size=5)
_anything = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | _texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_texts, inner, max_size=3),
    max_leaves=6,
)
_objects = st.fixed_dictionaries(
    {},
    optional={
        "name": st.none() | _texts | _anything,
        "value": st.floats(allow_nan=False) | _anything,
        "labels": st.dictionaries(_texts, st.none() | _texts, max_size=3) | _anything,
        "n": st.integers(-(2**31), 2**31 - 1) | _anything,
        "price": st.decimals(-10_000, 10_000, places=2).map(str) | _anything,
        "at": st.datetimes().map(str) | st.integers(-(2**62), 2**62) | _anything,
        "inner": st.fixed_dictionaries({}, optional={"a": st.integers(0, 9), "deep": _anything}) | _anything,
    },
)
_values = st.none() | st.binary(max_size=8) | _objects.map(lambda made: json.dumps(made).encode())


@settings(max_examples=150, deadline=None)
@given(st.lists(_values, max_size=6))
def test_a_value_is_decoded_the_same_alone_and_among_others(values: list[bytes | None]) -> None:
    together = decode(values)

    alone = [decode([value]).to_pylist()[0] for value in values]

    for row, single in zip(together.to_pylist(), alone, strict=True):
        assert (row["value"], row["_error"], row["_raw"]) == (
            single["value"],
            single["_error"],
            single["_raw"],
        )
    together.validate(full=True)


def test_columns_as_text_are_read_back_the_same() -> None:
    text = "`odd name` STRING, a ARRAY<MAP<STRING, STRUCT<x: DECIMAL(10,2), y: TIMESTAMP>>>, b SMALLINT"

    assert to_ddl(parse_ddl(text)) == text
    assert parse_ddl("a: int, b long") == parse_ddl("a INT, b BIGINT")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "names no columns"),
        ("a", "a: 'nothing' is no type"),
        ("a INT b INT", "expected ','"),
        ("a WIBBLE", "a: 'wibble' is no type"),
        ("a ARRAY<INT", "expected '>', found 'the end'"),
        ("a MAP<INT, INT>", "keys of a map are strings"),
        ("a INT, a INT", "names a twice"),
        ("a DECIMAL(50)", "no decimal(50,0)"),
        ("a INT; drop", "cannot be read at '; drop'"),
        ("a STRUCT<b INT", "expected"),
    ],
)
def test_a_text_that_names_no_columns_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(SparkOptionError) as refused:
        parse_ddl(text)

    assert complaint in str(refused.value)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"valueFormat": "xml"}, "option valueFormat: 'xml' is none of raw, json, avro"),
        ({"valueFormat": "json"}, "option valueSchema: is required"),
        ({"valueSchema": "a INT"}, "option valueSchema: has no meaning without valueFormat"),
        ({"valueFormat": "json", "valueSchema": "a INT", "valueSchemaLocation": "/x"}, "valueSchemaLocation"),
        ({"valueFormat": "json", "valueSchema": "a INT", "valueframing": "confluent"}, "valueFraming"),
        ({"valueFormat": "json", "valueSchema": "a INT", "valueShema": "a INT"}, "option valueShema: is not"),
        ({"valueFormat": "avro"}, "valueSchema: is required with valueFormat avro"),
    ],
)
def test_options_that_make_no_sense_are_refused(given: dict[str, str], complaint: str) -> None:
    with pytest.raises(SparkOptionError) as refused:
        format_options(given)

    assert complaint in str(refused.value)


def test_values_stay_bytes_unless_asked_for() -> None:
    assert not is_decoded({})
    assert not is_decoded({"valueformat": "raw"})
    assert is_decoded({"valueformat": "JSON", "valueschema": "a INT"})


def test_the_columns_asked_for_are_a_struct() -> None:
    schema = decoded_schema(TOPIC, columns({"valueFormat": "json", "valueSchema": "a INT"}, no_sample))

    assert schema.names == ["key", "value", "offset", "_error", "_raw"]
    assert isinstance(schema["value"].dataType, StructType)
