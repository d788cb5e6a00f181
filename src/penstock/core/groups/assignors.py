"""Server-side assignors of consumer groups: who reads which partitions.

    uniform   as many partitions for each member as the subscriptions allow, and as few as possible move
    range     neighbouring partitions for each member; topics with the same subscribers and the same
              number of partitions are cut at the same places, so that what is keyed alike is read together
    simple    of share groups: as uniform, and where there are more members than partitions, the others
              share the partitions that have the fewest members

All start from the last target, so that members keep what they have. With racks, a partition that is
free is given to a member in the rack of one of its replicas, if there is one with room: balance and
what members have already come first.

An assignor is a generator that pauses after every few thousand partitions, because a large group
must not hold the loop: the caller decides how far to go on in one turn. Its result is what each
member shall have. The same input leads to the same result on every node.

Left out: assignors on the clients' side, which Kafka does not have for this protocol either.
"""

import heapq
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import field
from typing import NamedTuple, TypeAlias

from penstock.core.groups.cluster_topics import AssignableTopic
from penstock.core.groups.partition_sets import PartitionSet, shared_indexes
from penstock.core.model import TopicId
from penstock.core.values import dataclass

# How many partitions are looked at between two pauses: one or two milliseconds.
PARTITIONS_PER_STEP = 2_000
MEMBERS_PER_STEP = 200
# A member costs as much as so many partitions.
MEMBER_WORK = 8
# A group with very different subscriptions is balanced by moves; most are balanced after two rounds.
BALANCE_ROUNDS_MAX = 10
# How many members with equally little are asked for their rack.
NEIGHBOURS_MAX = 8


class AssignorMember(NamedTuple):
    """What an assignor knows of a member; `topics` are those that exist, sorted."""

    topics: tuple[TopicId, ...]
    rack_id: str | None = None
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class AssignorInput:
    """The members of a group, the topics they subscribe to, and what each was to have before."""

    members: Mapping[str, AssignorMember]
    topics: Mapping[TopicId, AssignableTopic]
    previous: Mapping[str, PartitionSet] = field(default_factory=dict)

    def work(self) -> int:
        """How much there is to do, in partitions."""
        work = MEMBER_WORK * len(self.members) + sum([topic.partitions for topic in self.topics.values()])
        subscriptions = [member.topics for member in self.members.values()]
        if all(topics is subscriptions[0] or topics == subscriptions[0] for topics in subscriptions):
            return work
        # Where they differ, every topic is looked at with each of its readers.
        return work + sum(map(len, subscriptions))


TargetAssignment: TypeAlias = dict[str, PartitionSet]
AssignorSteps: TypeAlias = Generator[None, None, TargetAssignment]
_Partition: TypeAlias = tuple[TopicId, int]


def uniform(given: AssignorInput) -> AssignorSteps:
    """Spread partitions evenly, and move as few as possible."""
    subscriptions = {member.topics for member in given.members.values()}
    if len(subscriptions) <= 1:
        return _uniform_alike(given)
    return _uniform_mixed(given)


def range_(given: AssignorInput) -> AssignorSteps:
    """Give each member neighbouring partitions, alike in topics that are read together."""
    subscribers = yield from _subscribers(given)
    found: dict[str, dict[TopicId, frozenset[int]]] = {member_id: {} for member_id in given.members}
    orders: dict[tuple[int, tuple[str, ...]], list[str]] = {}
    for topic in sorted(given.topics.values(), key=lambda each: each.name):
        readers = subscribers.get(topic.id, [])
        if not readers:
            continue
        alike = (topic.partitions, tuple(readers))
        if alike not in orders:
            orders[alike] = _by_last_range(given, topic.id, readers)
        start, (share, extra) = 0, divmod(topic.partitions, len(readers))
        for place, member_id in enumerate(orders[alike]):
            end = start + share + (place < extra)
            if end > start:
                found[member_id][topic.id] = shared_indexes(frozenset(range(start, end)))
            start = end
        yield
    return dict(found)


def simple(given: AssignorInput) -> AssignorSteps:
    """Spread partitions evenly; members that would have none share one with others."""
    target = yield from uniform(given)
    # Uniform gives each partition to one member.
    counts = {
        (topic_id, index): 1
        for partitions in target.values()
        for topic_id, indexes in partitions.items()
        for index in indexes
    }
    yield
    # By subscription: how many members a partition shall have at most, and those with the fewest members.
    heaps: dict[tuple[TopicId, ...], tuple[int, list[tuple[int, _Partition]]]] = {}
    # Those that had one first: the others fill what is left.
    for number, member_id in enumerate(sorted(target, key=lambda each: (not given.previous.get(each), each))):
        topics = given.members[member_id].topics
        if target[member_id] or not topics:
            continue
        if topics not in heaps:
            heaps[topics] = _fewest_members(given, topics, counts)
            yield
        had = given.previous.get(member_id, {})
        had = {topic_id: indexes for topic_id, indexes in had.items() if topic_id in topics}
        shared = _shared_partition(had, *heaps[topics], counts)
        if shared is not None:
            counts[shared] = counts.get(shared, 0) + 1
            target[member_id] = {shared[0]: frozenset([shared[1]])}
        if number % MEMBERS_PER_STEP == MEMBERS_PER_STEP - 1:
            yield
    return target


def _fewest_members(
    given: AssignorInput, topics: tuple[TopicId, ...], counts: Mapping[_Partition, int]
) -> tuple[int, list[tuple[int, _Partition]]]:
    readers = sum([member.topics == topics for member in given.members.values()])
    found = [(each, index) for each in topics for index in range(given.topics[each].partitions)]
    heap = [(counts.get(partition, 0), partition) for partition in found]
    heapq.heapify(heap)
    return -(-readers // max(1, len(heap))), heap


def _shared_partition(
    previous: PartitionSet, most: int, heap: list[tuple[int, _Partition]], counts: Mapping[_Partition, int]
) -> _Partition | None:
    """The one that the member had, if there is room; else one with the fewest members."""
    for topic_id in sorted(previous):
        for index in sorted(previous[topic_id]):
            if 0 < counts.get((topic_id, index), 0) < most:
                return topic_id, index
    while heap:
        count, partition = heap[0]
        if count == counts.get(partition, 0):
            heapq.heapreplace(heap, (count + 1, partition))
            return partition
        heapq.heapreplace(heap, (counts.get(partition, 0), partition))
    return None


ASSIGNORS: Mapping[str, Callable[[AssignorInput], AssignorSteps]] = {"uniform": uniform, "range": range_}


def run(steps: AssignorSteps) -> TargetAssignment:
    """Go on to the end."""
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            target: TargetAssignment = ended.value
            return target


def _subscribers(given: AssignorInput) -> Generator[None, None, dict[TopicId, list[str]]]:
    """The members that read each topic, sorted."""
    subscribers: dict[TopicId, list[str]] = {}
    looked_at = 0
    for member_id in sorted(given.members):
        topics = given.members[member_id].topics
        for topic_id in topics:
            subscribers.setdefault(topic_id, []).append(member_id)
        looked_at += len(topics)
        if looked_at > PARTITIONS_PER_STEP:
            looked_at = 0
            yield
    return subscribers


def _by_last_range(given: AssignorInput, topic_id: TopicId, readers: Sequence[str]) -> list[str]:
    """Members in the order of the ranges they had; those without one follow by instance or member id."""

    def place(member_id: str) -> tuple[int, int, str]:
        had = given.previous.get(member_id, {}).get(topic_id)
        name = given.members[member_id].instance_id or member_id
        return (0, min(had), name) if had else (1, 0, name)

    return sorted(readers, key=place)


def _uniform_alike(given: AssignorInput) -> AssignorSteps:
    """Every member subscribes to the same topics: each gets its share, and the first few one more."""
    members = sorted(given.members)
    if not members:
        return {}
    topics = [given.topics[topic_id] for topic_id in given.members[members[0]].topics]
    share, extra = divmod(sum([topic.partitions for topic in topics]), len(members))
    kept: dict[str, list[_Partition]] = {}
    taken: dict[TopicId, set[int]] = {topic.id: set() for topic in topics}
    # Members that had most come first: they are the ones that can use an extra partition without a move.
    had = {member_id: sum(map(len, given.previous.get(member_id, {}).values())) for member_id in members}
    looked_at = 0
    for member_id in sorted(members, key=lambda each: (-had[each], each)):
        keeps = _kept(given, member_id, topics, taken)
        room = share
        if len(keeps) > share and extra:
            room, extra = share + 1, extra - 1
        kept[member_id] = keeps[:room]
        for topic_id, partition in kept[member_id]:
            taken[topic_id].add(partition)
        looked_at += len(keeps) + 1
        if looked_at > PARTITIONS_PER_STEP:
            looked_at = 0
            yield
    rooms = _rooms(members, kept, share, extra)
    yield
    free = [
        (topic, partition)
        for topic in topics
        for partition in range(topic.partitions)
        if partition not in taken[topic.id]
    ]
    yield
    yield from _fill(given, free, rooms, kept)
    return (yield from _as_sets(kept))


def _rooms(
    members: Sequence[str], kept: Mapping[str, Sequence[_Partition]], share: int, extra: int
) -> dict[str, int]:
    """How many partitions each member gets besides those it keeps."""
    rooms: dict[str, int] = {}
    for member_id in members:
        missing = share - len(kept[member_id])
        # One that has its share of kept partitions, and no extra one yet, may get one now.
        if extra and missing >= 0:
            missing, extra = missing + 1, extra - 1
        rooms[member_id] = max(missing, 0)
    return rooms


def _kept(
    given: AssignorInput, member_id: str, topics: Sequence[AssignableTopic], taken: Mapping[TopicId, set[int]]
) -> list[_Partition]:
    """What the member had and may keep, those in its rack first."""
    rack = given.members[member_id].rack_id
    previous = given.previous.get(member_id)
    if not previous:
        return []
    near: list[_Partition] = []
    far: list[_Partition] = []
    for topic in topics:
        for partition in sorted(previous.get(topic.id, ())):
            if partition < topic.partitions and partition not in taken[topic.id]:
                is_near = rack is None or not topic.racks or rack in topic.racks[partition]
                (near if is_near else far).append((topic.id, partition))
    return near + far


def _fill(
    given: AssignorInput,
    free: Sequence[tuple[AssignableTopic, int]],
    rooms: dict[str, int],
    kept: Mapping[str, list[_Partition]],
) -> Generator[None, None, None]:
    """Give away free partitions: near ones first, then one by one to whoever has room."""
    by_rack: dict[str, list[str]] = {}
    for member_id, room in rooms.items():
        rack = given.members[member_id].rack_id
        if rack is not None and room:
            by_rack.setdefault(rack, []).append(member_id)
    rest: list[_Partition] = []
    for number, (topic, partition) in enumerate(free):
        if number % PARTITIONS_PER_STEP == PARTITIONS_PER_STEP - 1:
            yield
        taker = _near_member(topic.racks[partition], by_rack, rooms) if by_rack and topic.racks else None
        if taker is None:
            rest.append((topic.id, partition))
        else:
            kept[taker].append((topic.id, partition))
            rooms[taker] -= 1
    takers = [member_id for member_id, room in rooms.items() for _ in range(room)]
    assert len(takers) >= len(rest), "shares add up to the partitions"
    for member_id, partition_ in zip(takers, rest, strict=False):
        kept[member_id].append(partition_)


def _near_member(
    racks: Sequence[str], by_rack: Mapping[str, list[str]], rooms: Mapping[str, int]
) -> str | None:
    for rack in racks:
        near = by_rack.get(rack)
        while near:
            if rooms[near[-1]]:
                return near[-1]
            near.pop()
    return None


def _uniform_mixed(given: AssignorInput) -> AssignorSteps:
    """Members subscribe to different topics: give to whoever has least, then move what is uneven."""
    subscribers = yield from _subscribers(given)
    # Topics with few readers first: their partitions have the least choice.
    topics = sorted(
        [topic for topic in given.topics.values() if topic.id in subscribers],
        key=lambda each: (len(subscribers[each.id]), each.name),
    )
    loads = dict.fromkeys(sorted(given.members), 0)
    owned: dict[TopicId, dict[str, list[int]]] = {}
    for topic in topics:
        owned[topic.id] = yield from _keep_topic(given, topic, subscribers[topic.id], loads)
    for topic in topics:
        yield from _give_topic(given, topic, owned[topic.id], loads)
    for _ in range(BALANCE_ROUNDS_MAX):
        moved = 0
        for topic in topics:
            moved += _even_out(owned[topic.id], loads)
            yield
        if not moved:
            break
    return (yield from _by_member(given, owned))


def _by_member(given: AssignorInput, owned: Mapping[TopicId, Mapping[str, Sequence[int]]]) -> AssignorSteps:
    found: dict[str, dict[TopicId, frozenset[int]]] = {member_id: {} for member_id in given.members}
    for topic_id, by_member in owned.items():
        for member_id, partitions in by_member.items():
            if partitions:
                found[member_id][topic_id] = shared_indexes(frozenset(partitions))
        yield
    return dict(found)


def _keep_topic(
    given: AssignorInput, topic: AssignableTopic, readers: Sequence[str], loads: dict[str, int]
) -> Generator[None, None, dict[str, list[int]]]:
    owned: dict[str, list[int]] = {}
    taken: set[int] = set()
    for member_id in readers:
        had = given.previous.get(member_id, {}).get(topic.id, frozenset())
        keeps = [each for each in sorted(had) if each < topic.partitions and each not in taken]
        taken.update(keeps)
        owned[member_id] = keeps
        loads[member_id] += len(keeps)
    yield
    return owned


def _give_topic(
    given: AssignorInput, topic: AssignableTopic, owned: dict[str, list[int]], loads: dict[str, int]
) -> Generator[None, None, None]:
    taken = {partition for partitions in owned.values() for partition in partitions}
    heap = [(loads[member_id], member_id) for member_id in owned]
    heapq.heapify(heap)
    for number, partition in enumerate(each for each in range(topic.partitions) if each not in taken):
        if number % PARTITIONS_PER_STEP == PARTITIONS_PER_STEP - 1:
            yield
        load, member_id = _least(given, topic, partition, heap)
        heapq.heappush(heap, (load + 1, member_id))
        owned[member_id].append(partition)
        loads[member_id] += 1


def _least(
    given: AssignorInput, topic: AssignableTopic, partition: int, heap: list[tuple[int, str]]
) -> tuple[int, str]:
    """Take a member with least to read out of the heap: of the first few, one in a rack of the partition."""
    first = heapq.heappop(heap)
    if not topic.racks:
        return first
    looked_at, found = [first], None
    while len(looked_at) <= NEIGHBOURS_MAX:
        if given.members[looked_at[-1][1]].rack_id in topic.racks[partition]:
            found = looked_at.pop()
            break
        if not heap or heap[0][0] != first[0]:
            break
        looked_at.append(heapq.heappop(heap))
    if found is None:
        found = looked_at.pop(0)
    for entry in looked_at:
        heapq.heappush(heap, entry)
    return found


def _even_out(owned: dict[str, list[int]], loads: dict[str, int]) -> int:
    """Move partitions of one topic from those with most to those with least; returns how many."""
    moved = 0
    least = [(loads[member_id], member_id) for member_id in owned]
    most = [(-load, member_id) for load, member_id in least if owned[member_id]]
    heapq.heapify(least)
    heapq.heapify(most)
    while most and least:
        load, giver = -most[0][0], most[0][1]
        if load != loads[giver] or not owned[giver]:
            heapq.heappop(most)
            if owned[giver] and load != loads[giver]:
                heapq.heappush(most, (-loads[giver], giver))
            continue
        low, taker = least[0]
        if low != loads[taker]:
            heapq.heapreplace(least, (loads[taker], taker))
            continue
        if load - low < 2:
            break
        owned[taker].append(owned[giver].pop())
        loads[giver] -= 1
        loads[taker] += 1
        moved += 1
    return moved


def _as_sets(kept: Mapping[str, Sequence[_Partition]]) -> AssignorSteps:
    found: TargetAssignment = {}
    for member_id, partitions in kept.items():
        by_topic: dict[TopicId, list[int]] = {}
        for topic_id, partition in partitions:
            by_topic.setdefault(topic_id, []).append(partition)
        found[member_id] = {
            topic_id: shared_indexes(frozenset(indexes)) for topic_id, indexes in by_topic.items()
        }
        if len(found) % MEMBERS_PER_STEP == 0:
            yield
    return found
