import io
import json
from datetime import UTC, datetime
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from penstock.spark.errors import SparkOptionError
from penstock.spark.formats import columns, decoded_schema, decoder
from penstock.spark.formats.schema import parse_ddl, to_ddl

SCHEMA = {
    "type": "record",
    "name": "Metric",
    "fields": [
        {"name": "name", "type": "string"},
        {"name": "value", "type": ["null", "double"]},
        {"name": "labels", "type": {"type": "map", "values": "string"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "tags", "type": {"type": "array", "items": "int"}},
    ],
}
OPTIONS = {"valueFormat": "avro", "valueSchema": json.dumps(SCHEMA)}
RECORD = {
    "name": "cpu",
    "value": 1.5,
    "labels": {"host": "a"},
    "at": datetime(2026, 1, 1, tzinfo=UTC),
    "tags": [1, 2],
}


def encoded(record: dict[str, Any]) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, SCHEMA, record)
    return stream.getvalue()


def decode(values: list[bytes | None], **options: str) -> list[dict[str, Any]]:
    given = {**OPTIONS, **options}
    schema = decoded_schema(parse_ddl("value STRING"), columns(given, lambda _: []))
    batch = pa.RecordBatch.from_pydict({"value": pa.array(values, pa.binary())})
    rows: list[dict[str, Any]] = decoder(given, schema)(batch).to_pylist(maps_as_pydicts="strict")
    return rows


def test_an_avro_record_becomes_columns() -> None:
    assert to_ddl(columns(OPTIONS, lambda _: [])) == (
        "name STRING, value DOUBLE, labels MAP<STRING, STRING>, at TIMESTAMP, tags ARRAY<INT>"
    )
    assert decode([encoded(RECORD), None]) == [
        {"value": RECORD, "_error": None, "_raw": None},
        {"value": None, "_error": None, "_raw": None},
    ]


def test_bytes_that_are_no_record_keep_their_bytes_and_say_why() -> None:
    rows = decode([encoded(RECORD), b"\x02", encoded(RECORD) + b"more", b"\xff" * 30])

    assert [row["_raw"] for row in rows] == [None, b"\x02", encoded(RECORD) + b"more", b"\xff" * 30]
    assert rows[0]["value"] == RECORD
    assert "4 bytes are left over" in rows[2]["_error"]
    assert all(row["_error"] for row in rows[1:])


def test_a_confluent_frame_is_stripped_and_one_that_is_missing_is_an_error() -> None:
    rows = decode([b"\0\0\0\0\7" + encoded(RECORD), encoded(RECORD), b"\0"], valueFraming="confluent")

    assert rows[0]["value"] == RECORD
    assert [row["_error"] for row in rows[1:]] == ["no Confluent frame in front of the value"] * 2


@pytest.mark.parametrize(
    ("schema", "complaint"),
    [
        ("{", "is no Avro schema"),
        ('"string"', "is not the schema of an Avro record"),
        (
            '{"type":"record","name":"R","fields":[{"name":"a","type":["int","string"]}]}',
            "a: a union may hold",
        ),
    ],
)
def test_a_schema_that_is_no_use_is_refused(schema: str, complaint: str) -> None:
    with pytest.raises(SparkOptionError) as refused:
        columns({"valueFormat": "avro", "valueSchema": schema}, lambda _: [])

    assert complaint in str(refused.value)
