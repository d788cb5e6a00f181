"""What a message class is to those who make and read one."""

import pytest

from penstock.core.model import Fault, ProtocolError
from penstock.core.protocol.codec import Message, message, part
from penstock.core.protocol.messages.fetch import FetchResponseEpochEnd, FetchResponsePartition
from penstock.core.protocol.messages.heartbeat import HeartbeatRequest
from penstock.core.protocol.schema import (
    Array,
    Int32,
    Nullable,
    NullableArray,
    Part,
    String,
    since,
    tagged,
    until,
)

BEAT = HeartbeatRequest(group_id="g", generation_id=3, member_id="m")


def test_a_message_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        BEAT.generation_id = 4  # type: ignore[misc]

    assert BEAT.generation_id == 3


def test_a_message_has_slots_and_no_dictionary() -> None:
    with pytest.raises(AttributeError):
        _ = BEAT.__dict__


def test_a_field_without_default_must_be_given_by_name() -> None:
    with pytest.raises(TypeError, match="member_id"):
        HeartbeatRequest(group_id="g", generation_id=3)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        HeartbeatRequest("g", 3, "m")  # type: ignore[call-arg]


def test_equal_fields_make_equal_messages_and_equal_hashes() -> None:
    twin = HeartbeatRequest(group_id="g", generation_id=3, member_id="m", group_instance_id=None)

    assert twin == BEAT
    assert hash(twin) == hash(BEAT)
    assert twin != HeartbeatRequest(group_id="g", generation_id=4, member_id="m")


def test_a_part_may_be_the_default_of_a_field() -> None:
    partition = FetchResponsePartition(
        partition_index=0, error_code=0, high_watermark=1, aborted_transactions=None, records=None
    )

    assert partition.diverging_epoch == FetchResponseEpochEnd(epoch=-1, end_offset=-1)


def test_a_message_says_who_sends_it() -> None:
    assert HeartbeatRequest.__doc__ == "Sent by a member of a classic group to its coordinator."
    assert HeartbeatRequest.__name__ == "HeartbeatRequest"
    assert HeartbeatRequest.__module__ == "penstock.core.protocol.messages.heartbeat"


def test_a_version_that_does_not_exist_is_our_own_fault() -> None:
    with pytest.raises(ProtocolError) as caught:
        BEAT.encode(5)

    assert caught.value.fault is Fault.OURS


def test_what_a_version_cannot_say_is_refused_unless_ignorable() -> None:
    static = HeartbeatRequest(group_id="g", generation_id=3, member_id="m", group_instance_id="i")

    with pytest.raises(ProtocolError, match="group_instance_id") as caught:
        static.encode(2)

    assert caught.value.fault is Fault.OURS
    assert static.encode(3)


@part
class Leaf(Part):
    """A part for these tests."""

    number: Int32 = 7


@message(versions=range(4), flexible_from=2)
class Tree(Message):
    """A message for these tests, with every kind of history."""

    old: Int32 = until(1, default=0, ignorable=True)
    between: String = since(1, until=2, default="", ignorable=True)
    leaf: Leaf = since(1, default=Leaf(), ignorable=True)
    maybe: Nullable[Leaf] = since(2, default=None, ignorable=True)
    leaves: NullableArray[Leaf] = since(0, default=(), nullable_from=3)
    extra: Array[Int32] = tagged(5, since=2, default=(), ignorable=True)


FULL = Tree(old=1, between="b", leaf=Leaf(number=2), maybe=Leaf(), leaves=(Leaf(),), extra=(1, 2))


def test_each_version_carries_the_fields_it_has_and_defaults_for_the_rest() -> None:
    decoded = [Tree.decode(FULL.encode(version), version) for version in range(4)]

    assert decoded[0] == Tree(old=1, leaves=(Leaf(),))
    assert decoded[1] == Tree(old=1, between="b", leaf=Leaf(number=2), leaves=(Leaf(),))
    assert decoded[2] == Tree(between="b", leaf=Leaf(number=2), maybe=Leaf(), leaves=(Leaf(),), extra=(1, 2))
    assert decoded[3] == Tree(leaf=Leaf(number=2), maybe=Leaf(), leaves=(Leaf(),), extra=(1, 2))


def test_null_is_written_only_where_a_version_allows_it() -> None:
    none = Tree(leaves=None)

    assert Tree.decode(none.encode(3), 3) == none
    with pytest.raises(ProtocolError) as caught:
        none.encode(2)
    assert caught.value.fault is Fault.OURS


def test_a_value_too_large_for_its_field_is_our_own_fault() -> None:
    with pytest.raises(ProtocolError) as caught:
        Tree(old=2**31).encode(0)

    assert caught.value.fault is Fault.OURS
