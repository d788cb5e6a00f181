"""What a decoder does with bytes that lie: refuse them, before anything is made of them."""

import tracemalloc

import pytest

from penstock.core.model import Fault, ProtocolError
from penstock.core.protocol.codec import Message, decoder, message, part
from penstock.core.protocol.messages.heartbeat import HeartbeatRequest
from penstock.core.protocol.messages.metadata import MetadataRequest, MetadataResponse
from penstock.core.protocol.messages.produce import ProduceRequest
from penstock.core.protocol.schema import Array, Int32, Part, String, Uuid, since, tagged

HUGE_VARINT = b"\xff\xff\xff\xff\x0f"


@part
class Nothing(Part):
    """A part without bytes in versions that are not flexible."""

    later: Int32 = since(1, default=0, ignorable=True)


@message(versions=range(2))
class Crowd(Message):
    """Many of nothing."""

    members: Array[Nothing]


@message(versions=range(2), flexible_from=1)
class Labelled(Message):
    """A message with a known tag."""

    name: String
    label: String = tagged(1, since=1, default="")
    ids: Array[Uuid] = tagged(2, since=1, default=())


@pytest.mark.parametrize("count", [b"\x7f\xff\xff\xff", b"\x00\x10\x00\x00"])
def test_a_count_beyond_the_bytes_left_is_refused_without_allocating(count: bytes) -> None:
    hostile = count + b"\x00" * 64
    decoder(MetadataRequest, 4)  # the generator takes memory of its own, once
    tracemalloc.start()

    with pytest.raises(ProtocolError, match="cannot fit"):
        MetadataRequest.decode(hostile, 4)

    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100_000


def test_a_varint_count_beyond_the_bytes_left_is_refused() -> None:
    with pytest.raises(ProtocolError, match="cannot fit"):
        MetadataResponse.decode(b"\x00\x00\x00\x00" + HUGE_VARINT, 9)


def test_elements_that_take_no_bytes_are_bounded_too() -> None:
    with pytest.raises(ProtocolError, match="cannot fit"):
        Crowd.decode((1_000_000).to_bytes(4, "big"), 0)


def test_a_string_longer_than_the_frame_is_refused() -> None:
    with pytest.raises(ProtocolError, match="group_id"):
        HeartbeatRequest.decode(b"\x7f\xff" + b"g" * 10, 0)


@pytest.mark.parametrize("length", [b"\xff\xff", b"\xff\xfe", b"\x80\x00"])
def test_a_negative_length_where_null_is_not_allowed_is_refused(length: bytes) -> None:
    with pytest.raises(ProtocolError, match="group_id"):
        HeartbeatRequest.decode(length + b"g" * 10, 0)


def test_a_length_below_minus_one_is_refused_even_where_null_is_allowed() -> None:
    good = HeartbeatRequest(group_id="g", generation_id=1, member_id="m").encode(3)
    assert good.endswith(b"\xff\xff")

    with pytest.raises(ProtocolError, match="group_instance_id"):
        HeartbeatRequest.decode(good[:-2] + b"\xff\xfe", 3)


def test_records_longer_than_the_frame_are_refused() -> None:
    prefix = b"\x00" + b"\xff\xff" + b"\x00\x00\x75\x30" + b"\x02" + b"\x02t" + b"\x02" + b"\x00\x00\x00\x00"

    with pytest.raises(ProtocolError, match="records"):
        ProduceRequest.decode(prefix + HUGE_VARINT + b"x" * 20, 9)


def test_a_varint_of_more_than_32_bits_is_refused() -> None:
    with pytest.raises(ProtocolError, match="32 bits"):
        HeartbeatRequest.decode(b"\xff\xff\xff\xff\xff\x01" + b"g" * 10, 4)


def test_text_that_is_not_utf_8_is_refused() -> None:
    with pytest.raises(ProtocolError, match="utf-8"):
        HeartbeatRequest.decode(b"\x00\x02\xc3\x28" + b"\x00\x00\x00\x01" + b"\x00\x01m", 0)


def test_a_byte_after_the_message_is_refused() -> None:
    good = HeartbeatRequest(group_id="g", generation_id=1, member_id="m").encode(4)

    with pytest.raises(ProtocolError, match="1 bytes follow") as caught:
        HeartbeatRequest.decode(good + b"\x00", 4)

    assert caught.value.fault is Fault.PEER


def test_unknown_tags_are_skipped_and_known_ones_read_between_them() -> None:
    unknown = b"\x00\x03abc"
    known = b"\x01\x03\x03hi"
    far = b"\xff\x7f\x00"

    read = Labelled.decode(b"\x02n" + b"\x03" + unknown + known + far, 1)

    assert read == Labelled(name="n", label="hi")


def test_unknown_tags_are_dropped_when_the_message_is_sent_on() -> None:
    read = HeartbeatRequest.decode(b"\x02g\x00\x00\x00\x01\x02m\x00" + b"\x01\x07\x02xx", 4)

    assert read.encode(4) == b"\x02g\x00\x00\x00\x01\x02m\x00" + b"\x00"


@pytest.mark.parametrize(
    ("tags", "complaint"),
    [
        (b"\x01\x01\x7f\x03hi", "announced"),
        (b"\x01\x01\x04\x02hi\x00", "not as long"),
        (b"\x01\x01\x02\x03hi", "not as long"),
        (HUGE_VARINT + b"\x01\x00", "cannot fit"),
        (b"\x01\x02\x05" + HUGE_VARINT, "cannot fit"),
    ],
)
def test_a_tag_section_that_lies_about_sizes_is_refused(tags: bytes, complaint: str) -> None:
    with pytest.raises(ProtocolError, match=complaint):
        Labelled.decode(b"\x02n" + tags, 1)


@pytest.mark.parametrize(
    ("tags", "complaint"),
    [
        (b"\x01\x07\x05xx", "announced"),
        (HUGE_VARINT, "cannot fit"),
        (b"\x02\x07\x00", "cannot fit"),
        (b"\x81", "index out of range"),
    ],
)
def test_a_tag_section_of_unknown_tags_is_checked_as_well(tags: bytes, complaint: str) -> None:
    with pytest.raises(ProtocolError, match=complaint):
        HeartbeatRequest.decode(b"\x02g\x00\x00\x00\x01\x02m\x00" + tags, 4)


def test_nothing_at_all_is_refused() -> None:
    with pytest.raises(ProtocolError):
        HeartbeatRequest.decode(b"", 0)
