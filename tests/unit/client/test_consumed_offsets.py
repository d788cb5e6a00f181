"""What of a consumer's messages was handed out, processed and committed."""

from penstock.client import Message, TopicPartition
from penstock.client.consumed_offsets import ConsumedOffsets

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)


def message(partition: TopicPartition, offset: int) -> Message[bytes | None, bytes | None]:
    return Message(*partition, offset, None, None, (), 0, False)


def handed_out(*messages: tuple[TopicPartition, int]) -> ConsumedOffsets:
    consumed: ConsumedOffsets = ConsumedOffsets()
    consumed.hand_out([message(*one) for one in messages])
    return consumed


def test_messages_are_processed_when_they_are_settled_and_not_before() -> None:
    consumed = handed_out((ZERO, 4), (ZERO, 5), (ONE, 7))
    assert consumed.take_processed() == {}

    consumed.settle()

    assert consumed.take_processed() == {ZERO: 6, ONE: 8}
    assert not consumed.has_processed


def test_a_rewind_goes_back_to_what_is_not_committed() -> None:
    consumed = handed_out((ZERO, 4), (ZERO, 5), (ONE, 7))

    consumed.committed({ZERO: 5, ONE: 8})

    assert consumed.uncommitted() == {ZERO: 6}
    assert consumed.drop_uncommitted() == {ZERO: 5}
    assert consumed.uncommitted() == {}


def test_what_was_committed_by_others_is_not_committed_again() -> None:
    consumed = handed_out((ZERO, 4), (ONE, 7))
    consumed.settle()

    consumed.committed({ZERO: 5, ONE: 7})

    assert consumed.take_processed() == {ONE: 8}


def test_partitions_that_are_taken_away_are_noticed_while_something_of_them_is_not_committed() -> None:
    consumed = handed_out((ZERO, 4), (ONE, 7))
    consumed.committed({ZERO: 5})

    lost = []
    for partition in (ZERO, ONE):
        consumed.forget([partition])
        lost.append(consumed.has_lost)

    assert lost == [False, True]
    assert (consumed.drop_in_hand(), consumed.has_lost) == ({}, False)
