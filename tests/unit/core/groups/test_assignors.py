"""The assignors: balance, what stays, racks, neighbours, and input of every shape."""

from collections.abc import Mapping
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.groups.assignors import ASSIGNORS, AssignorInput, AssignorMember, TargetAssignment, run
from penstock.core.groups.cluster_topics import AssignableTopic
from penstock.core.groups.partition_sets import PartitionSet, count, rows
from penstock.core.model import TopicId, TopicName


def topic(number: int, partitions: int, *racks: str) -> AssignableTopic:
    by_partition = tuple((racks[each % len(racks)],) for each in range(partitions)) if racks else ()
    return AssignableTopic(TopicId(UUID(int=number)), TopicName(f"t{number}"), partitions, by_partition)


def subscribed(
    *topics: AssignableTopic, rack: str | None = None, instance: str | None = None
) -> AssignorMember:
    return AssignorMember(tuple(sorted([each.id for each in topics])), rack, instance)


def assign(
    name: str,
    members: Mapping[str, AssignorMember],
    topics: list[AssignableTopic],
    previous: Mapping[str, PartitionSet] | None = None,
) -> TargetAssignment:
    return run(ASSIGNORS[name](AssignorInput(members, {each.id: each for each in topics}, previous or {})))


def sizes(target: TargetAssignment) -> list[int]:
    return sorted(count(partitions) for partitions in target.values())


def moved(before: TargetAssignment, after: TargetAssignment) -> int:
    """How many partitions a member that is still there does not have any more."""
    return sum(
        len(indexes - after[member_id].get(topic_id, frozenset()))
        for member_id, partitions in before.items()
        if member_id in after
        for topic_id, indexes in partitions.items()
    )


def test_uniform_spreads_evenly_over_topics() -> None:
    topics = [topic(1, 5), topic(2, 3)]
    members = {each: subscribed(*topics) for each in "abc"}

    assert sizes(assign("uniform", members, topics)) == [2, 3, 3]


def test_uniform_moves_only_what_a_new_member_needs() -> None:
    topics = [topic(1, 100)]
    before = assign("uniform", {f"m{each}": subscribed(*topics) for each in range(4)}, topics)

    after = assign("uniform", {f"m{each}": subscribed(*topics) for each in range(5)}, topics, before)

    assert sizes(after) == [20] * 5
    assert moved(before, after) == 20


def test_uniform_moves_nothing_that_is_in_place_when_a_member_leaves() -> None:
    topics = [topic(1, 10), topic(2, 7)]
    members = {f"m{each}": subscribed(*topics) for each in range(5)}
    before = assign("uniform", members, topics)
    del members["m2"]

    after = assign("uniform", members, topics, before)

    assert sizes(after) == [4, 4, 4, 5]
    assert moved(before, after) == 0


def test_uniform_gives_partitions_to_members_in_their_rack_and_stays_balanced() -> None:
    topics = [topic(1, 6, "east", "west")]
    members = {
        "a": subscribed(*topics, rack="east"),
        "b": subscribed(*topics, rack="west"),
        "c": subscribed(*topics),
    }

    target = assign("uniform", members, topics)

    near = [rows(target[each])[0][1] for each in "ab"]
    assert sizes(target) == [2, 2, 2]
    assert all(partition % 2 == 0 for partition in near[0])
    assert all(partition % 2 == 1 for partition in near[1])


def test_racks_take_nothing_away_from_a_member() -> None:
    topics = [topic(1, 4, "east")]
    members = {"a": subscribed(*topics, rack="west"), "b": subscribed(*topics, rack="west")}
    before = assign("uniform", members, topics)

    members["b"] = subscribed(*topics, rack="east")

    assert moved(before, assign("uniform", members, topics, before)) == 0


def test_of_what_a_member_has_too_much_of_it_gives_up_what_is_far_away() -> None:
    topics = [topic(1, 4, "east", "west")]
    before = assign("uniform", {"a": subscribed(*topics, rack="west")}, topics)

    after = assign(
        "uniform", {"a": subscribed(*topics, rack="west"), "b": subscribed(*topics)}, topics, before
    )

    assert rows(after["a"])[0][1] == (1, 3)


def test_a_member_keeps_its_extra_partition() -> None:
    topics = [topic(1, 3)]
    before = assign("uniform", {"z": subscribed(*topics)}, topics)

    after = assign("uniform", {"a": subscribed(*topics), "z": subscribed(*topics)}, topics, before)

    assert (count(after["z"]), moved(before, after)) == (2, 1)


def test_uniform_moves_partitions_to_a_member_that_reads_little() -> None:
    first, second = topic(1, 8), topic(2, 1)
    before = assign("uniform", {"a": subscribed(first)}, [first, second])

    after = assign(
        "uniform", {"a": subscribed(first), "b": subscribed(first, second)}, [first, second], before
    )

    assert sizes(after) == [4, 5]


def test_uniform_balances_members_with_different_subscriptions() -> None:
    first, second = topic(1, 6), topic(2, 3)
    members = {"a": subscribed(first), "b": subscribed(first, second), "c": subscribed(second)}

    target = assign("uniform", members, [first, second])

    assert sizes(target) == [3, 3, 3]
    assert assign("uniform", members, [first, second], target) == target


def test_range_gives_neighbours_and_the_same_places_in_topics_that_are_alike() -> None:
    topics = [topic(1, 5), topic(2, 5)]
    members = {each: subscribed(*topics) for each in "ab"}

    target = assign("range", members, topics)

    assert [rows(target[each]) for each in "ab"] == [
        tuple((each.id, (0, 1, 2)) for each in topics),
        tuple((each.id, (3, 4)) for each in topics),
    ]


def test_range_keeps_members_in_their_order() -> None:
    topics = [topic(1, 6)]
    before = assign("range", {each: subscribed(*topics) for each in "mz"}, topics)

    after = assign("range", {each: subscribed(*topics) for each in "amz"}, topics, before)

    assert [rows(after[each])[0][1] for each in "mza"] == [(0, 1), (2, 3), (4, 5)]


shapes = st.tuples(
    st.lists(st.integers(min_value=0, max_value=12), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 15), st.sampled_from([None, "east", "west"])), max_size=8),
    st.lists(st.tuples(st.integers(0, 15), st.sampled_from([None, "east"])), max_size=8),
    st.booleans(),
)


@pytest.mark.parametrize("name", ASSIGNORS)
@given(shape=shapes)
def test_every_partition_with_a_subscriber_has_exactly_one_reader(name: str, shape: tuple) -> None:  # type: ignore[type-arg]
    counts, first, second, has_racks = shape
    racks = ("east", "west") if has_racks else ()
    topics = [topic(number, partitions, *racks) for number, partitions in enumerate(counts)]
    previous: TargetAssignment = {}
    for members in (first, second):
        group = {
            f"m{number}": subscribed(*[each for at, each in enumerate(topics) if mask >> at & 1], rack=rack)
            for number, (mask, rack) in enumerate(members)
        }
        previous = assign(name, group, topics, previous)

        read = [(t, index) for each in previous.values() for t, indexes in rows(each) for index in indexes]
        wanted = {each for member in group.values() for each in member.topics}
        assert sorted(read) == sorted(
            (each.id, index) for each in topics if each.id in wanted for index in range(each.partitions)
        )
        assert all(set(each) <= set(group[member_id].topics) for member_id, each in previous.items())
