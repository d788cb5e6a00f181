"""Keys and values as bytes, and back."""

from dataclasses import dataclass
from typing import Any, TypedDict

import pytest

from penstock.client import (
    AvroSerde,
    BytesSerde,
    JsonSerde,
    Message,
    MsgpackSerde,
    ProtobufSerde,
    Serde,
    SerializationFailed,
    StringSerde,
    serde,
)
from penstock.client.serialization import decode_message, encode_part


@dataclass
class Point:
    x: int
    y: int


class Shape(TypedDict):
    name: str


SCHEMA = {
    "type": "record",
    "name": "Point",
    "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": "int"}],
}


@pytest.mark.parametrize(
    ("how", "value", "data"),
    [
        (BytesSerde(), b"\0\1", b"\0\1"),
        (StringSerde(), "gr\u00fcn", b"gr\xc3\xbcn"),
        (StringSerde("latin-1"), "gr\u00fcn", b"gr\xfcn"),
        (JsonSerde(), {"a": [1, None]}, b'{"a":[1,null]}'),
        (JsonSerde(Point), Point(1, 2), b'{"x":1,"y":2}'),
        (JsonSerde(Shape), {"name": "disc"}, b'{"name":"disc"}'),
        (MsgpackSerde(Point), Point(1, 2), b"\x82\xa1x\x01\xa1y\x02"),
        (AvroSerde(SCHEMA), {"x": 1, "y": -2}, b"\x02\x03"),
        (AvroSerde('{"type": "array", "items": "int"}'), [1], b"\x02\x02\x00"),
        (AvroSerde("string"), "ab", b"\x04ab"),
        (serde(lambda number: b"%d" % number, int), 17, b"17"),
    ],
)
def test_a_value_has_bytes_and_bytes_have_a_value(how: Serde[Any], value: Any, data: bytes) -> None:
    assert how.encode(value) == data
    assert how.decode(data) == value


def test_protobuf_messages_are_those_of_their_class() -> None:
    wrappers = pytest.importorskip("google.protobuf.wrappers_pb2", reason="needs protobuf")
    how = ProtobufSerde(wrappers.StringValue)

    assert how.encode(wrappers.StringValue(value="ab")) == b"\x0a\x02ab"
    assert how.decode(b"\x0a\x02ab").value == "ab"
    with pytest.raises(SerializationFailed, match="a Int32Value is no StringValue"):
        encode_part("value", "t", how, wrappers.Int32Value(value=1))


def test_text_is_sent_as_utf8_and_numbers_are_not_sent_as_zeros() -> None:
    assert encode_part("value", "t", BytesSerde(), "\u00fc") == b"\xc3\xbc"
    with pytest.raises(SerializationFailed, match="t: a value cannot be written"):
        encode_part("value", "t", BytesSerde(), 3)


def test_nothing_stays_nothing() -> None:
    tombstone: Message[bytes | None, bytes | None] = Message("t", 0, 5, None, None)

    assert encode_part("key", "t", JsonSerde(), None) is None
    assert decode_message(tombstone, JsonSerde(), JsonSerde()) == tombstone


@pytest.mark.parametrize(
    ("how", "data"),
    [
        (JsonSerde(Point), b'{"x":1}'),
        (JsonSerde(), b"\xff"),
        (MsgpackSerde(), b""),
        (AvroSerde(SCHEMA), b"\x02\x03\x00"),
        (StringSerde(), b"\xff"),
    ],
)
def test_an_error_names_the_record_in_one_line_and_has_its_bytes(how: Serde[Any], data: bytes) -> None:
    message: Message[bytes | None, bytes | None] = Message("orders", 3, 17, b"k", data)

    with pytest.raises(SerializationFailed, match=r"^orders/3/17: its value cannot be read: .") as raised:
        decode_message(message, None, how)

    assert "\n" not in str(raised.value)
    assert raised.value.message == message
