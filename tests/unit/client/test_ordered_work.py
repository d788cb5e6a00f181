"""Which messages may be handled, and which offsets committed, in any order of events."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.client import RawMessage, TopicPartition
from penstock.client.message import Message
from penstock.client.ordered_work import Order, OrderedWork, Task

PARTITION = TopicPartition("t", 0)
OTHER = TopicPartition("t", 1)


def message(offset: int, key: bytes | None = None, partition: int = 0) -> RawMessage:
    return Message("t", partition, offset, key, None)


def begun(work: OrderedWork, *messages: RawMessage) -> list[Task]:
    return [task for one in messages if (task := work.add(one)) is not None]


def test_messages_of_a_key_are_handled_one_after_the_other() -> None:
    work = OrderedWork()

    first, other = begun(work, message(0, b"a"), message(1, b"a"), message(2, b"b"), message(3, b"a"))

    assert [first.message.offset, other.message.offset] == [0, 2]
    second = work.finish(first)
    assert second is not None
    assert second.message.offset == 1
    third = work.finish(second)
    assert third is not None
    assert third.message.offset == 3
    assert work.finish(third) is None
    assert work.finish(other) is None
    assert work.pending == 0


def test_equal_keys_of_two_partitions_and_messages_without_a_key_are_independent() -> None:
    work = OrderedWork()

    tasks = begun(work, message(0, b"a"), message(0, b"a", partition=1), message(1), message(2))

    assert len(tasks) == 4


def test_the_order_may_be_that_of_the_partition_or_none() -> None:
    assert len(begun(OrderedWork("partition"), message(0), message(1), message(0, partition=1))) == 2
    assert len(begun(OrderedWork("none"), message(0, b"a"), message(1, b"a"))) == 2


def test_only_what_is_finished_without_a_gap_may_be_committed() -> None:
    work = OrderedWork()
    # Compaction has taken offset 6.
    five, seven, eight = begun(work, message(5), message(7), message(8))

    work.finish(seven)
    assert work.committable() == {}
    work.finish(five)
    assert work.committable() == {PARTITION: 8}
    assert work.committable() == {}
    work.finish(eight, is_done=False)
    assert work.committable() == {}


def test_a_partition_that_is_drained_begins_nothing_and_commits_what_runs() -> None:
    work = OrderedWork()
    first, other = begun(work, message(0, b"a"), message(1, b"a"), message(0, partition=1))

    work.drain([PARTITION])

    assert work.running([PARTITION]) == 1
    assert first.is_cancelled
    assert not other.is_cancelled
    assert work.finish(first) is None
    assert work.committable() == {PARTITION: 1}
    assert work.pending == 1


def test_a_partition_that_is_lost_and_comes_back_is_not_committed_for_its_former_tasks() -> None:
    work = OrderedWork()
    (before,) = begun(work, message(7, b"a"))

    work.discard([PARTITION])
    (again, further) = begun(work, message(7, b"b"), message(8, b"c"))
    work.finish(before)
    work.finish(further)

    assert work.committable() == {}
    work.finish(again)
    assert work.committable() == {PARTITION: 9}


@given(
    keys=st.lists(st.sampled_from([None, b"a", b"b", b"c"]), max_size=30),
    choices=st.lists(st.integers(0, 1_000), min_size=30, max_size=30),
    order=st.sampled_from(["key", "partition", "none"]),
)
def test_whatever_ends_first_lanes_keep_their_order_and_no_offset_is_skipped(
    keys: list[bytes | None], choices: list[int], order: Order
) -> None:
    work = OrderedWork(order)
    running = begun(work, *(message(offset, key) for offset, key in enumerate(keys)))
    finished: list[int] = []
    committed = 0

    while running:
        task = running.pop(choices[len(finished)] % len(running))
        finished.append(task.message.offset)
        following = work.finish(task)
        if following is not None:
            running.append(following)
        committed = work.committable().get(PARTITION, committed)
        assert set(range(committed)) <= set(finished)
        assert committed == len(keys) or committed not in finished

    assert committed == len(keys)
    assert sorted(finished) == list(range(len(keys)))
    lanes = {"key": [b"a", b"b", b"c"], "partition": [b"a"], "none": []}[order]
    for lane in lanes:
        of_lane = [offset for offset in finished if order == "partition" or keys[offset] == lane]
        assert of_lane == sorted(of_lane)
