"""How many records groups have consumed, counted from what they commit."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

from penstock.broker.coordinator.group_metrics import ClientKey
from penstock.core.groups import (
    CommitOffsets,
    ConsumerMemberStored,
    DeleteGroup,
    DeleteOffsets,
    GroupImage,
    OffsetCommitted,
    OffsetToCommit,
)
from penstock.core.model import (
    LeaderEpoch,
    Offset,
    PartitionIndex,
    Timestamp,
    TopicId,
    TopicName,
    TopicPartition,
)
from penstock.observability import render
from tests.unit.broker.coordinator.leader_bench import topic_facts
from tests.unit.broker.groups.groups_bench import READ_TOPIC, GroupsBench

ORDERS = TopicPartition(READ_TOPIC, PartitionIndex(0))
LABELS = '{group="readers",topic="orders"}'


def consumed(bench: GroupsBench) -> list[str]:
    page = render([bench.groups.metrics]).decode()
    return [line for line in page.splitlines() if line.startswith("penstock_messages_consumed_total{")]


def commit(bench: GroupsBench, offset: int, **fields: Any) -> None:
    bench.ask_to_commit(offset, **fields)


def test_a_commit_counts_the_records_since_the_one_before() -> None:
    bench = GroupsBench().start()
    bench.produce(100, bench.timers.wall_ms)

    commit(bench, 10)
    commit(bench, 40)
    commit(bench, 45)

    assert consumed(bench) == [f"penstock_messages_consumed_total{LABELS} 35.0"]


def test_a_position_that_goes_back_takes_nothing_away() -> None:
    bench = GroupsBench().start()
    commit(bench, 10)
    commit(bench, 30)

    commit(bench, 5)
    commit(bench, 7)

    assert consumed(bench) == [f"penstock_messages_consumed_total{LABELS} 22.0"]


def test_a_first_commit_counts_from_where_its_member_was_told_to_begin() -> None:
    bench = GroupsBench().start()
    bench.produce(100, bench.timers.wall_ms)
    bench.groups.looked_up(ClientKey("app", "/127.0.0.1"), ORDERS, Offset(60))
    bench.groups.looked_up(ClientKey("another", "/127.0.0.1"), ORDERS, Offset(0))
    joined = bench.join_alone(client_id="app", client_host="/127.0.0.1")

    commit(bench, 80, generation=joined.generation, member_id=joined.member_id)

    assert consumed(bench) == [f"penstock_messages_consumed_total{LABELS} 20.0"]


def test_reading_the_log_of_positions_again_counts_nothing() -> None:
    bench = GroupsBench().start()
    commit(bench, 10)
    commit(bench, 40)

    restarted = bench.restarted()
    before = consumed(restarted)
    commit(restarted, 41)

    assert before == []
    assert consumed(restarted) == [f"penstock_messages_consumed_total{LABELS} 1.0"]


def test_the_figure_goes_with_its_group() -> None:
    bench = GroupsBench().start()
    commit(bench, 10)
    commit(bench, 40)

    bench.ask(DeleteGroup)

    assert consumed(bench) == []
    assert bench.groups.metrics.consumed.figures == {}


def test_what_is_remembered_of_lookups_is_bounded() -> None:
    bench = GroupsBench().start()

    for client in range(12_000):
        bench.groups.looked_up(ClientKey(f"client-{client}", "/127.0.0.1"), ORDERS, Offset(5))

    assert len(bench.groups.consumption) == 10_000


class Watched(dict[TopicPartition, OffsetCommitted]):
    """Positions of a group that nobody may go through."""

    def __iter__(self) -> Iterator[TopicPartition]:
        raise AssertionError("all positions of the group were looked at")


def test_deleting_a_position_looks_at_no_other() -> None:
    bench = GroupsBench().start()
    wide = TopicName("wide")
    bench.follow(*topic_facts(wide, TopicId(UUID(int=99)), 50))
    parts = [TopicPartition(wide, PartitionIndex(number)) for number in range(50)]
    bench.ask(CommitOffsets, offsets=tuple([OffsetToCommit(part, Offset(3)) for part in parts]))
    bench.ask(CommitOffsets, offsets=tuple([OffsetToCommit(part, Offset(5)) for part in parts]))
    offsets = next(iter(bench.groups)).machine.image.offsets
    offsets["readers"] = Watched(offsets["readers"])

    bench.ask(DeleteOffsets, partitions=tuple(parts[:49]))
    before_the_last = consumed(bench)
    bench.ask(DeleteOffsets, partitions=(parts[49],))

    assert before_the_last == ['penstock_messages_consumed_total{group="readers",topic="wide"} 100.0']
    assert consumed(bench) == []


def test_a_first_commit_in_a_large_group_asks_some_of_its_members() -> None:
    bench = GroupsBench().start()
    tracker, image = bench.groups.consumption, GroupImage()
    members = [
        ConsumerMemberStored("large", f"member-{number}", client_id=f"app-{number}", client_host="/127.0.0.1")
        for number in range(1_000)
    ]
    for member in members:
        image.apply(member)
    asked: list[int] = []
    stored = image.consumers["large"].members
    image.consumers["large"].members = {
        member_id: asked_for(member, asked) for member_id, member in stored.items()
    }

    tracker.commits(image, OffsetCommitted("large", ORDERS, Offset(5), LeaderEpoch(0), "", Timestamp(0)))

    assert len(asked) <= 100


def asked_for(member: ConsumerMemberStored, asked: list[int]) -> Any:
    """The member, which notes that it was asked who its client is."""

    class Asked:
        client_host = member.client_host

        @property
        def client_id(self) -> str:
            asked.append(1)
            return member.client_id

    return Asked()
