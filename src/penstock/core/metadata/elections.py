"""Who leads a partition after brokers came and went, and who may lead it next (KIP-966).

ISR   replicas that follow closely; the leader is one of them
ELR   outside the ISR, yet sure to hold every committed record: kept while the ISR is
      smaller than the minimum, because nothing is committed then
last known ELR   were in the ELR once, and may have lost records since

A replica of the ISR has not restarted since it was found in sync, and is elected at once. One of
the ELR that has restarted may have come back with less than it had, whether it noticed or not, so
that all of them are asked first (`ReplicaReport`):

    all of ISR and ELR have reported          the longest log leads; another replica is asked as well if only
                                              one is eligible and its machine went down
    the grace period is over                  the longest of those that are there leads, if some
                                              replica of the ELR says that it lost nothing
    each of them has lost something           the longest log of all replicas leads, and no longer one is
                                              known; what is gone is stated, and followers may truncate
                                              what was committed

The longest log is the one with the latest epoch at its end, and among those the furthest end: it
has every committed record that any other has, also if it is outside the ELR.
"""

from collections.abc import Iterable, Mapping

import msgspec

from penstock.core.metadata.commands import (
    AlteredPartition,
    BalancedLeaders,
    BalanceLeaders,
    ElectionType,
    ElectLeader,
    ElectReported,
    Ok,
)
from penstock.core.metadata.decision import (
    ControllerConfig,
    DecisionBuilder,
    MetadataDecision,
    error_decision,
)
from penstock.core.metadata.effective_configs import broker_setting, topic_value
from penstock.core.metadata.image import (
    NO_BROKER_EPOCH,
    NO_LEADER,
    ConfigResourceType,
    MetadataImage,
    Partition,
    ReplicaLoss,
    ReplicaReport,
    Topic,
)
from penstock.core.metadata.records import PartitionChanged
from penstock.core.model import ApiError, ErrorKind, LeaderEpoch, NodeId

Nodes = tuple[NodeId, ...]


def without(nodes: Nodes, node_id: NodeId) -> Nodes:
    return tuple(node for node in nodes if node != node_id)


def with_isr(partition: Partition, isr: Nodes, minimum: int) -> Partition:
    """The partition with another ISR, and the ELR that follows from it."""
    if len(isr) >= minimum:
        return msgspec.structs.replace(partition, isr=isr, elr=(), last_known_elr=())
    had_it_all = (*partition.isr, *partition.elr)
    elr = tuple(n for n in partition.replicas if n in had_it_all and n not in isr)
    last_known = tuple(
        n for n in partition.replicas if n in partition.last_known_elr and n not in (*isr, *elr)
    )
    return msgspec.structs.replace(partition, isr=isr, elr=elr, last_known_elr=last_known)


def after_loss(partition: Partition, node_id: NodeId, minimum: int, loss: ReplicaLoss) -> Partition:
    """The partition without `node_id` in ISR and ELR, because it may miss records.

    A replica that lost everything is not kept as the last known one either.
    """
    complete = node_id in (*partition.isr, *partition.elr)
    after = with_isr(partition, without(partition.isr, node_id), minimum)
    elr, last_known = without(after.elr, node_id), after.last_known_elr
    if len(after.isr) >= minimum:
        last_known = ()
    elif loss is ReplicaLoss.EVERYTHING and len(partition.replicas) > 1:
        last_known = () if complete or node_id in last_known else last_known
    elif complete:
        last_known = tuple(n for n in partition.replicas if n == node_id or n in last_known)
    return msgspec.structs.replace(after, elr=elr, last_known_elr=last_known)


def reconsidered(
    partition: Partition,
    image: MetadataImage,
    node_id: NodeId,
    minimum: int,
    *,
    unclean: bool,
    loss: ReplicaLoss,
) -> Partition:
    """The partition after something happened to broker `node_id`.

    `image` already knows what state that broker is in. `unclean` allows a leader that may
    miss records.
    """
    after = partition
    if loss:
        after = after_loss(after, node_id, minimum, loss)
    elif node_id in partition.isr and _must_leave(partition, image, node_id):
        after = with_isr(after, without(after.isr, node_id), minimum)
    if after.leader not in after.isr or not image.is_live(after.leader):
        after = msgspec.structs.replace(after, leader=NO_LEADER)
    return settled(elected(after, image, minimum, unclean=unclean), image, minimum)


def settled(partition: Partition, image: MetadataImage, minimum: int) -> Partition:
    """The partition after a reassignment that waited only for the replicas that are in sync now."""
    return _with_directories(handed_over(arrived(partition, image, minimum), image, minimum), image)


def _with_directories(partition: Partition, image: MetadataImage) -> Partition:
    """The partition with the directories in which its replicas were in sync last."""
    directories = []
    for node_id, former in zip(partition.replicas, partition.directories, strict=False):
        broker = image.broker(node_id) if node_id in partition.isr else None
        directories.append(former if broker is None else broker.directory_id)
    known = tuple(directories)
    return (
        partition if known == partition.directories else msgspec.structs.replace(partition, directories=known)
    )


def arrived(partition: Partition, image: MetadataImage, minimum: int) -> Partition:
    """The partition without the replicas that a reassignment removes, once they are not needed.

    Every new replica must be in sync, and among those that stay at least the minimum: a
    replica of the target that is down for long does not block the move, and the move
    does not stop writes that were possible before.
    """
    if not partition.is_moving:
        return partition
    target = partition.target
    isr = tuple(node_id for node_id in partition.isr if node_id in target)
    if len(isr) < min(minimum, len(target)) or any(node_id not in isr for node_id in partition.adding):
        return partition
    after = with_isr(with_replicas(partition, image, target), isr, minimum)
    if after.leader not in isr:
        leader = next((node_id for node_id in _candidates(after, image) if node_id in isr), None)
        if leader is None:
            return partition
        after = msgspec.structs.replace(after, leader=leader)
    return after


def with_replicas(
    partition: Partition, image: MetadataImage, replicas: Nodes, adding: Nodes = (), removing: Nodes = ()
) -> Partition:
    """The partition on other brokers; the caller updates ISR, ELR and leader."""
    known = dict(zip(partition.replicas, partition.directories, strict=False))
    for node_id in replicas:
        broker = image.broker(node_id)
        if broker is not None and node_id not in partition.replicas:
            known[node_id] = broker.directory_id
    directories = tuple(known[node_id] for node_id in replicas if node_id in known)
    return msgspec.structs.replace(
        partition, replicas=replicas, directories=directories, adding=adding, removing=removing
    )


def _must_leave(partition: Partition, image: MetadataImage, node_id: NodeId) -> bool:
    """Whether a member of the ISR cannot stay in it: it is gone, or follows and is about to be."""
    return not image.may_lead(node_id) and (not image.is_live(node_id) or partition.leader != node_id)


def handed_over(partition: Partition, image: MetadataImage, minimum: int) -> Partition:
    """The partition with another leader, if its leader stops or is drained and one is in sync.

    A leader that stops leaves the ISR along with it: it will be silent soon, and producers
    with acks=all would wait for it.
    """
    leader = partition.leader
    if leader == NO_LEADER or not image.is_leaving(leader):
        return partition
    stopping = not image.may_lead(leader)
    heir = next((node_id for node_id in _candidates(partition, image) if node_id in partition.isr), leader)
    # One drained broker is as good as another, but better than one that stops.
    if heir == leader or (image.is_leaving(heir) and not stopping):
        return partition
    after = msgspec.structs.replace(partition, leader=heir)
    return with_isr(after, without(after.isr, leader), minimum) if stopping else after


def elected(
    partition: Partition, image: MetadataImage, minimum: int, *, unclean: bool, waited: bool = False
) -> Partition:
    """The partition with a leader, if it had none and some replica can lead.

    `waited` says that the grace period for reports is over.
    """
    if partition.leader != NO_LEADER:
        return partition
    candidates = _candidates(partition, image)
    in_sync = next((node_id for node_id in candidates if node_id in partition.isr), None)
    if in_sync is not None:
        return msgspec.structs.replace(partition, leader=in_sync)
    # Without a report it has not restarted since it was in sync.
    unbroken = (n for n in candidates if n in partition.elr and partition.report(n) is None)
    eligible = next(unbroken, None)
    if eligible is not None:
        return _led_by(partition, eligible, minimum)
    after = _elected_by_reports(partition, image, minimum, unclean=unclean, waited=waited)
    if after.leader != NO_LEADER:
        return after
    last = _last_known(partition)
    if last is None and unclean:
        last = _most_likely(partition, image, candidates)
    if last is None or not image.may_lead(last):
        return partition
    return _started_over(partition, last)


def _elected_by_reports(
    partition: Partition, image: MetadataImage, minimum: int, *, unclean: bool, waited: bool
) -> Partition:
    best = _longest(partition, image)
    if best is None:
        return partition
    if _is_whole(partition, image, best, waited=waited or unclean):
        return _led_by(partition, best.node_id, minimum)
    if unclean or _is_all_there_is(partition, image, best, waited=waited):
        return _started_over(partition, best.node_id)
    return partition


def _longest(partition: Partition, image: MetadataImage) -> ReplicaReport | None:
    """The report of the longest log that can lead; one with a hole only if there is no other."""
    order = _candidates(partition, image)
    alone = len(partition.replicas) == 1
    able = [
        report
        for report in partition.answers
        if report.node_id in order and (alone or report.loss is not ReplicaLoss.EVERYTHING)
    ]

    def rank(report: ReplicaReport) -> tuple[object, ...]:
        return (
            report.loss is not ReplicaLoss.RANGE,
            report.position,
            report.loss is ReplicaLoss.NOTHING,
            report.node_id in partition.complete,
            -order.index(report.node_id),
        )

    return max(able, key=rank, default=None)


def _is_whole(partition: Partition, image: MetadataImage, best: ReplicaReport, *, waited: bool) -> bool:
    """Whether this log has every committed record, as far as the replicas that were asked can tell."""
    whole = [
        report
        for report in partition.answers
        if report.loss is ReplicaLoss.NOTHING and report.node_id in partition.complete
    ]
    if best.loss is ReplicaLoss.RANGE or not any(best.position >= report.position for report in whole):
        return False
    return waited or not _silent(partition, image, _witnesses(partition, image))


def _witnesses(partition: Partition, image: MetadataImage) -> Nodes:
    """The replicas whose reports are waited for before the longest log leads.

    If only one was eligible, its machine went down and nobody else has reported, nobody could contradict
    it. The others may have stopped a moment before it with a log that is longer than what its disk has kept.
    """
    complete = partition.complete
    voices = sum(image.is_live(report.node_id) for report in partition.answers)
    if len(complete) != 1 or voices > 1:
        return complete
    brokers = [image.broker(node_id) for node_id in complete]
    fell = any(broker is not None and broker.previous_epoch == NO_BROKER_EPOCH for broker in brokers)
    return partition.replicas if fell else complete


def _is_all_there_is(
    partition: Partition, image: MetadataImage, best: ReplicaReport, *, waited: bool
) -> bool:
    """Whether no complete replica is left, and every copy that could have more was asked and has not."""
    asked = (*partition.complete, *partition.last_known_elr)
    # It was there a moment ago: what only it has is given up by an operator, not by a grace period.
    longer = (
        report.position > best.position and report.loss is not ReplicaLoss.RANGE
        for report in partition.reports
        if not image.may_lead(report.node_id)
    )
    if any(longer):
        return False
    lossless = (
        report.loss is ReplicaLoss.NOTHING and report.node_id in partition.complete
        for report in partition.reports
    )
    if not asked or any(lossless) or _silent(partition, image, asked):
        return False
    return waited or not _silent(partition, image, partition.replicas)


def _silent(partition: Partition, image: MetadataImage, nodes: Nodes) -> bool:
    """Whether one of these replicas has not reported since there is no leader, or is gone again."""
    answered = [report.node_id for report in partition.answers if image.is_live(report.node_id)]
    return any(node_id not in answered for node_id in nodes)


def _led_by(partition: Partition, leader: NodeId, minimum: int) -> Partition:
    """The partition under a leader that has every committed record, and is alone in sync for now."""
    return msgspec.structs.replace(with_isr(partition, (leader,), minimum), leader=leader)


def _started_over(partition: Partition, leader: NodeId) -> Partition:
    """The partition under a leader that may miss committed records.

    Whatever the others held beyond its log will be truncated: no replica is eligible, and
    followers must know that they may truncate what they take for committed.
    """
    return msgspec.structs.replace(
        partition,
        leader=leader,
        isr=(leader,),
        elr=(),
        last_known_elr=(),
        unclean_epoch=LeaderEpoch(partition.leader_epoch + 1),
    )


def reported(partition: Partition, report: ReplicaReport, minimum: int) -> Partition:
    """The partition after a replica has said what it found, before anyone is elected for it.

    A replica that lost something is not eligible any more, unless it is the last one: then what it
    has is wanted.
    """
    node_id = report.node_id
    matters = partition.leader == NO_LEADER or node_id in partition.elr
    if not matters or node_id in partition.isr or node_id not in partition.replicas:
        return partition
    others = {known.node_id: known for known in partition.reports}
    others[node_id] = report
    reports = tuple(others[n] for n in partition.replicas if n in others)
    after = msgspec.structs.replace(partition, reports=reports)
    if report.loss and node_id in after.elr and without(after.complete, node_id):
        after = after_loss(after, node_id, minimum, report.loss)
    return after


def without_report(partition: Partition, node_id: NodeId) -> Partition:
    """The partition without what a replica reported: it has restarted since, or left."""
    if partition.report(node_id) is None:
        return partition
    reports = tuple(report for report in partition.reports if report.node_id != node_id)
    return msgspec.structs.replace(partition, reports=reports)


def _candidates(partition: Partition, image: MetadataImage) -> Nodes:
    """Replicas that can lead, in the order of preference; drained brokers only after all others."""
    able = tuple(node_id for node_id in partition.replicas if image.may_lead(node_id))
    drained = tuple(node_id for node_id in able if image.is_leaving(node_id))
    return (*(node_id for node_id in able if node_id not in drained), *drained)


def _most_likely(partition: Partition, image: MetadataImage, candidates: Nodes) -> NodeId | None:
    """The candidate that probably misses the least; new replicas and those on a new disk miss nearly all."""
    places = dict(zip(partition.replicas, partition.directories, strict=False))

    def doubts(node_id: NodeId) -> tuple[bool, bool, bool]:
        broker = image.broker(node_id)
        moved = broker is not None and places.get(node_id, broker.directory_id) != broker.directory_id
        return moved, node_id in partition.adding, node_id not in partition.last_known_elr

    return min(candidates, key=doubts, default=None)


def _last_known(partition: Partition) -> NodeId | None:
    """The only replica that was ever complete, when no other is left.

    With one replica this is the way back after an unclean stop: what it has is all there is.
    """
    if partition.complete or len(partition.last_known_elr) != 1:
        return None
    last = partition.last_known_elr[0]
    return last if partition.report(last) is None else None


def with_epochs(before: Partition, after: Partition, *, renew: bool = False) -> Partition | None:
    """`after` under the epochs it needs; None if nothing changed. `renew` forces a new leader epoch.

    Removing a replica begins a new leader epoch: if it comes back with an empty log, an old
    fetch of it cannot pass for a new one.
    """
    after = _with_reports_that_matter(before, after)
    if after == before and not renew:
        return None
    fewer = any(node_id not in after.replicas for node_id in before.replicas)
    unclean = after.unclean_epoch > before.leader_epoch
    new_epoch = renew or fewer or unclean or after.leader != before.leader
    return msgspec.structs.replace(
        after,
        leader_epoch=LeaderEpoch(before.leader_epoch + new_epoch),
        partition_epoch=before.partition_epoch + 1,
    )


def _with_reports_that_matter(before: Partition, after: Partition) -> Partition:
    """Without a leader all of them; under a leader those of eligible replicas.

    A leader that may miss records starts with all reports, which say what is lost.
    """
    if not after.reports:
        return after
    kept = after.replicas if after.leader == NO_LEADER else after.elr
    if after.unclean_epoch > before.leader_epoch:
        kept = after.replicas
    reports = tuple(report for report in after.reports if report.node_id in kept)
    return after if reports == after.reports else msgspec.structs.replace(after, reports=reports)


class ElectionRules:
    """The minimum ISR of topics, and whether their leaders may miss records.

    A broker that comes or goes touches all its topics, and most of them have the same
    configuration: none. The rules of those are worked out once per replica count.
    """

    __slots__ = ("_image", "_known", "_static")

    def __init__(self, image: MetadataImage, around: ControllerConfig) -> None:
        self._image = image
        self._static: Mapping[str, str] = around.static
        self._known: dict[int, tuple[int, bool]] = {}

    def of(self, topic: Topic) -> tuple[int, bool]:
        if self._image.config(ConfigResourceType.TOPIC, topic.name):
            return self._work_out(topic)
        replicas = topic.replicas_to_rely_on
        rules = self._known.get(replicas)
        if rules is None:
            rules = self._known[replicas] = self._work_out(topic)
        return rules

    def _work_out(self, topic: Topic) -> tuple[int, bool]:
        minimum = topic_value(self._image, topic, "min.insync.replicas", self._static)
        unclean = topic_value(self._image, topic, "unclean.leader.election.enable", self._static)
        assert isinstance(minimum, int)
        return minimum, bool(unclean)


def follow_rules(draft: DecisionBuilder, topics: Iterable[Topic], around: ControllerConfig) -> None:
    """Let partitions follow a changed minimum ISR or unclean.leader.election.enable.

    With a lower minimum the ISR alone may commit again, so that the ELR is no longer sure
    to hold everything: it must not outlive the change.
    """
    rules = ElectionRules(draft.image, around)
    for topic in topics:
        minimum, unclean = rules.of(topic)
        for partition in topic.partitions:
            after = with_isr(partition, partition.isr, minimum)
            after = elected(after, draft.image, minimum, unclean=unclean)
            changed = with_epochs(partition, settled(after, draft.image, minimum))
            if changed is not None:
                draft.add(PartitionChanged(topic.id, changed))


def elect_leader(image: MetadataImage, command: ElectLeader, around: ControllerConfig) -> MetadataDecision:
    topic = image.topic(command.topic)
    partition = None if topic is None else topic.partition(command.index)
    if topic is None or partition is None:
        return error_decision(
            ErrorKind.UNKNOWN_PARTITION, f"there is no partition {command.topic}/{command.index}"
        )
    minimum, _ = ElectionRules(image, around).of(topic)
    if command.election is ElectionType.PREFERRED:
        after = _preferred(image, partition)
    else:
        after = _anyone(image, partition, minimum)
    if isinstance(after, ApiError):
        return error_decision(after.kind, after.detail)
    changed = with_epochs(partition, after)
    assert changed is not None, "an election that changes nothing is an error"
    draft = DecisionBuilder(image)
    draft.add(PartitionChanged(topic.id, changed))
    return draft.decision(AlteredPartition(changed))


def _preferred(image: MetadataImage, partition: Partition) -> Partition | ApiError:
    preferred = partition.replicas[0]
    if partition.leader == preferred:
        return ApiError(ErrorKind.ELECTION_NOT_NEEDED, f"broker {preferred} leads already")
    if preferred not in partition.isr or not image.may_lead(preferred):
        return ApiError(ErrorKind.PREFERRED_LEADER_NOT_AVAILABLE, f"broker {preferred} is not in sync")
    if image.is_leaving(preferred):
        return ApiError(ErrorKind.PREFERRED_LEADER_NOT_AVAILABLE, f"broker {preferred} is drained")
    return msgspec.structs.replace(partition, leader=preferred)


def _anyone(image: MetadataImage, partition: Partition, minimum: int) -> Partition | ApiError:
    if partition.leader != NO_LEADER:
        return ApiError(ErrorKind.ELECTION_NOT_NEEDED, f"broker {partition.leader} leads")
    after = elected(partition, image, minimum, unclean=True, waited=True)
    if after.leader == NO_LEADER:
        return ApiError(ErrorKind.ELIGIBLE_LEADERS_NOT_AVAILABLE, "none of the replicas is live")
    return settled(after, image, minimum)


def elect_reported(
    image: MetadataImage, command: ElectReported, around: ControllerConfig
) -> MetadataDecision:
    """Elect without the replicas that have not reported in time, where that is safe."""
    rules = ElectionRules(image, around)
    draft = DecisionBuilder(image)
    for topic_id, index in command.partitions:
        topic = draft.image.topic_by_id(topic_id)
        partition = None if topic is None else topic.partition(index)
        if topic is None or partition is None:
            continue
        minimum, unclean = rules.of(topic)
        after = elected(partition, draft.image, minimum, unclean=unclean, waited=True)
        changed = with_epochs(partition, settled(after, draft.image, minimum))
        if changed is not None:
            draft.add(PartitionChanged(topic.id, changed))
    return draft.decision(Ok())


def balance_leaders(
    image: MetadataImage, command: BalanceLeaders, around: ControllerConfig
) -> MetadataDecision:
    """Give leadership back to preferred replicas of brokers that lead too little of what they should.

    Only so many at a time: each move is a short pause for the clients of a partition.
    """
    draft = DecisionBuilder(image)
    if not broker_setting(image, "auto.leader.rebalance.enable", static=around.static):
        return draft.decision(BalancedLeaders(0, 0))
    percentage = broker_setting(image, "leader.imbalance.per.broker.percentage", static=around.static)
    assert isinstance(percentage, int)
    movable = _movable(image, percentage)
    for topic, partition in movable[: command.moves_max]:
        after = msgspec.structs.replace(partition, leader=partition.replicas[0])
        changed = with_epochs(partition, after)
        assert changed is not None
        draft.add(PartitionChanged(topic.id, changed))
    moved = min(len(movable), command.moves_max)
    return draft.decision(BalancedLeaders(moved, len(movable) - moved))


def _movable(image: MetadataImage, percentage: int) -> list[tuple[Topic, Partition]]:
    """Partitions whose preferred replica could lead, of brokers that are out of balance."""
    preferred: dict[NodeId, int] = {}
    elsewhere: dict[NodeId, int] = {}
    misled = []
    for topic in image.each_topic():
        for partition in topic.partitions:
            first = partition.replicas[0]
            preferred[first] = preferred.get(first, 0) + 1
            if partition.leader not in (first, NO_LEADER):
                elsewhere[first] = elsewhere.get(first, 0) + 1
                misled.append((topic, partition))
    unbalanced = {node for node, count in elsewhere.items() if 100 * count > percentage * preferred[node]}
    return [
        (topic, partition)
        for topic, partition in misled
        if partition.replicas[0] in unbalanced and _can_return(image, partition)
    ]


def _can_return(image: MetadataImage, partition: Partition) -> bool:
    return not partition.is_moving and not isinstance(_preferred(image, partition), ApiError)
