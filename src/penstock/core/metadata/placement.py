"""Which brokers keep the replicas of new partitions."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain

from penstock.core.metadata.commands import CreatedPartitions, CreatePartitions, ReplicaAssignment
from penstock.core.metadata.decision import (
    ControllerConfig,
    DecisionBuilder,
    MetadataDecision,
    error_decision,
)
from penstock.core.metadata.effective_configs import broker_setting
from penstock.core.metadata.image import Broker, MetadataImage, Partition, Topic
from penstock.core.metadata.records import PartitionCreated
from penstock.core.metadata.topic_names import is_internal
from penstock.core.model import ApiError, ErrorKind, NodeId, PartitionIndex

# Enough to lose one broker and go on without risk.
REPLICAS_BY_DEFAULT_MAX = 3


def place(image: MetadataImage, start: int, count: int, replication_factor: int) -> list[Partition]:
    """New partitions from index `start` on, their leaders assigned to the brokers in turn.

    The turn goes on where the partitions that exist have ended, so that many small topics
    spread as evenly as one large one. Each round over the brokers shifts the followers, so
    that a broker's partitions do not all have the same second replica. Brokers that are
    fenced or stop get replicas only where there are not enough others, and never lead;
    drained brokers get none.
    """
    deal = ReplicaPlacer(image)
    assert deal.leaders, "no live broker can lead"
    assert 0 < replication_factor <= places(image), "enough brokers"
    return [
        new_partition(
            image, start + number, deal.replicas((), replication_factor, image.partition_count + number)
        )
        for number in range(count)
    ]


def places(image: MetadataImage) -> int:
    """How many replicas a new partition can have; 0 if no broker could lead it."""
    deal = ReplicaPlacer(image)
    return len(deal.leaders) + len(deal.others) if deal.leaders else 0


class ReplicaPlacer:
    """Brokers in the order in which they get replicas.

    Racks take turns in that order, and a partition's replicas are spread over them as evenly
    as they can be. If any broker has no rack, racks are ignored.
    """

    __slots__ = ("_names", "_racks", "leaders", "others")

    def __init__(self, image: MetadataImage) -> None:
        usable = [broker for broker in image.each_broker() if not broker.drained]
        told = all(broker.rack is not None for broker in usable)
        self._racks = {broker.node_id: (broker.rack or "") if told else "" for broker in usable}
        self._names = sorted(frozenset(self._racks.values()))
        self.leaders = self._in_turns([broker for broker in usable if image.may_lead(broker.node_id)])
        self.others = self._in_turns([broker for broker in usable if not image.may_lead(broker.node_id)])

    def replicas(self, present: Sequence[NodeId], count: int, turn: int) -> list[NodeId]:
        """`present` and as many more that there are `count`; without any, the first shall lead."""
        chosen = list(present)
        for brokers in (self.leaders, self.others):
            while len(chosen) < count:
                node_id = self._next(brokers, turn, chosen)
                if node_id is None:
                    break
                chosen.append(node_id)
        return chosen

    def _next(self, brokers: list[NodeId], turn: int, chosen: list[NodeId]) -> NodeId | None:
        """Of the racks that have the fewest replicas, the broker that comes first."""
        used = dict.fromkeys(self._names, 0)
        for node_id in chosen:
            if node_id in self._racks:
                used[self._racks[node_id]] += 1
        least = min(used.values())
        best, best_uses = None, len(chosen) + 1
        for node_id in _walk(brokers, turn, len(used)):
            uses = used[self._racks[node_id]]
            if uses < best_uses and node_id not in chosen:
                best, best_uses = node_id, uses
                if uses == least:
                    break
        return best

    def _in_turns(self, brokers: list[Broker]) -> list[NodeId]:
        """One broker of each rack after the other, the racks in the order of their names."""
        place: dict[str, int] = {}
        keyed = []
        for broker in brokers:
            rack = self._racks[broker.node_id]
            place[rack] = place.get(rack, 0) + 1
            keyed.append((place[rack], rack, broker.node_id))
        return [node_id for _, _, node_id in sorted(keyed)]


def _walk(brokers: list[NodeId], turn: int, racks: int) -> Iterator[NodeId]:
    """The brokers from the one whose turn it is on, the others shifted by one rack each round."""
    size = len(brokers)
    if not size:
        return
    first = turn % size
    shift = turn // size * racks
    yield brokers[first]
    for place in range(size - 1):
        yield brokers[(first + 1 + (shift + place) % (size - 1)) % size]


def new_partition(image: MetadataImage, index: int, replicas: Sequence[NodeId]) -> Partition:
    """A partition that starts with every replica in sync that can lead, and the first of them leading."""
    isr = tuple(node_id for node_id in replicas if image.may_lead(node_id))
    directories = []
    for node_id in replicas:
        broker = image.broker(node_id)
        assert broker is not None, "replicas are on registered brokers"
        directories.append(broker.directory_id)
    return Partition(PartitionIndex(index), tuple(replicas), isr, isr[0], directories=tuple(directories))


def partitions_by_hand(
    image: MetadataImage,
    assignments: Sequence[ReplicaAssignment],
    start: int = 0,
    replicas: int | None = None,
) -> list[Partition] | ApiError:
    """Partitions with these replicas; their indexes must run from `start` without a gap."""
    ordered = sorted(assignments, key=lambda assignment: assignment.partition)
    if [assignment.partition for assignment in ordered] != list(range(start, start + len(ordered))):
        detail = f"partitions must be numbered from {start} on, each of them once"
        return ApiError(ErrorKind.INVALID_ASSIGNMENT, detail)
    expected = len(ordered[0].replicas) if replicas is None else replicas
    for assignment in ordered:
        complaint = _problem_with_replicas(image, assignment.replicas, expected)
        if complaint is not None:
            return ApiError(ErrorKind.INVALID_ASSIGNMENT, f"partition {assignment.partition}: {complaint}")
    return [new_partition(image, assignment.partition, assignment.replicas) for assignment in ordered]


def _problem_with_replicas(image: MetadataImage, replicas: tuple[NodeId, ...], expected: int) -> str | None:
    if not replicas:
        return "it needs a replica"
    for node_id in replicas:
        broker = image.broker(node_id)
        if broker is None:
            return f"there is no broker {node_id}"
        if broker.drained:
            return f"broker {node_id} is drained"
    if len(frozenset(replicas)) != len(replicas):
        return "a broker holds at most one replica"
    if len(replicas) != expected:
        return f"it has {len(replicas)} replicas, others have {expected}"
    if not any(image.may_lead(node_id) for node_id in replicas):
        return "none of its brokers can lead now"
    return None


def problem_with_count(
    image: MetadataImage, topic: str, count: int, around: ControllerConfig
) -> ApiError | None:
    """Whether so many partitions more are too many. Internal topics have settings of their own."""
    most = broker_number(image, "create.partitions.max", around)
    if count > most and not is_internal(topic):
        detail = f"{count} partitions at once are too many: create.partitions.max is {most}"
        return ApiError(ErrorKind.INVALID_PARTITIONS, detail)
    return problem_with_total(image, count, around)


def problem_with_total(image: MetadataImage, count: int, around: ControllerConfig) -> ApiError | None:
    """Whether the cluster would have too many partitions with so many more."""
    if image.partition_count + count > around.partitions_max:
        detail = f"{count} more partitions would exceed the cluster's limit of {around.partitions_max}"
        return ApiError(ErrorKind.INVALID_PARTITIONS, detail)
    return None


def problem_with_load(
    image: MetadataImage, topic: str, partitions: Sequence[Partition], around: ControllerConfig
) -> ApiError | None:
    """Whether a broker would get more replicas than it may have. Internal topics are needed, however many."""
    most = broker_number(image, "max.broker.partitions", around)
    if image.partition_count + len(partitions) <= most or is_internal(topic):
        return None
    wanted = Counter(chain.from_iterable(one.replicas for one in partitions))
    for node_id in sorted(wanted):
        count = image.replica_counts.get(node_id, 0) + wanted[node_id]
        if count > most:
            detail = f"broker {node_id} would have {count} replicas: max.broker.partitions is {most}"
            return ApiError(ErrorKind.INVALID_PARTITIONS, detail)
    return None


def broker_number(image: MetadataImage, key: str, around: ControllerConfig) -> int:
    """A number that is set for all brokers."""
    value = broker_setting(image, key, static=around.static)
    assert isinstance(value, int), key
    return value


def problem_with_replication(image: MetadataImage, factor: int) -> ApiError | None:
    """Whether so many replicas can be placed now."""
    most = places(image)
    if most == 0:
        return ApiError(ErrorKind.INVALID_REPLICATION_FACTOR, "no live broker can take a replica")
    if factor > most:
        drained = len(image.brokers) - most
        note = f", besides {drained} drained" if drained else ""
        detail = f"{factor} replicas need as many brokers, there are {most}{note}"
        return ApiError(ErrorKind.INVALID_REPLICATION_FACTOR, detail)
    return None


def create_partitions(
    image: MetadataImage, command: CreatePartitions, around: ControllerConfig
) -> MetadataDecision:
    topic = image.topic(command.name)
    if topic is None:
        return error_decision(ErrorKind.UNKNOWN_TOPIC, f"there is no topic '{command.name}'")
    present = len(topic.partitions)
    if topic.internal:
        detail = (
            f"keys of '{topic.name}' are hashed to its {present} partitions, so their number never changes"
        )
        return error_decision(ErrorKind.INVALID_PARTITIONS, detail)
    if command.count <= present:
        detail = f"topic '{topic.name}' has {present} partitions, {command.count} is not an increase"
        return error_decision(ErrorKind.INVALID_PARTITIONS, detail)
    more = command.count - present
    partitions = problem_with_count(image, topic.name, more, around) or _more_partitions(
        image, topic, command
    )
    if not isinstance(partitions, ApiError):
        partitions = problem_with_load(image, topic.name, partitions, around) or partitions
    if isinstance(partitions, ApiError):
        return error_decision(partitions.kind, partitions.detail)
    draft = DecisionBuilder(image)
    for partition in partitions:
        draft.note(PartitionCreated(topic.id, partition))
    reply = CreatedPartitions(topic.name, command.count)
    return draft.decision(reply, validate_only=command.validate_only)


def _more_partitions(
    image: MetadataImage, topic: Topic, command: CreatePartitions
) -> list[Partition] | ApiError:
    start = len(topic.partitions)
    more = command.count - start
    if command.assignments is None:
        return problem_with_replication(image, topic.replication_factor) or place(
            image, start, more, topic.replication_factor
        )
    if len(command.assignments) != more:
        detail = f"{more} new partitions need {more} assignments, there are {len(command.assignments)}"
        return ApiError(ErrorKind.INVALID_ASSIGNMENT, detail)
    numbered = [
        ReplicaAssignment(PartitionIndex(start + number), replicas)
        for number, replicas in enumerate(command.assignments)
    ]
    return partitions_by_hand(image, numbered, start, topic.replication_factor)
