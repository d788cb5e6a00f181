"""Commands about brokers (register, fence, stop, drain, unregister), cluster id, features, producer ids."""

from penstock.core.metadata.commands import (
    AllocateProducerIds,
    BeginControlledShutdown,
    BootstrapCluster,
    DrainBroker,
    FeatureUpdate,
    FenceBroker,
    Ok,
    ProducerIdBlock,
    RegisterBroker,
    RegisteredBroker,
    RemainingLeaderships,
    ReportReplicas,
    UnfenceBroker,
    UnregisterBroker,
    UpdateFeatures,
    UpgradeType,
)
from penstock.core.metadata.decision import (
    ControllerConfig,
    DecisionBuilder,
    MetadataDecision,
    error_decision,
)
from penstock.core.metadata.elections import (
    ElectionRules,
    elected,
    reconsidered,
    reported,
    settled,
    with_epochs,
    without_report,
)
from penstock.core.metadata.image import (
    NO_INCARNATION,
    Broker,
    ConfigResourceType,
    FeatureRange,
    MetadataImage,
    ReplicaLoss,
    ReplicaReport,
)
from penstock.core.metadata.levels import HIGHEST_LEVEL, LOWEST_LEVEL, METADATA_VERSION
from penstock.core.metadata.records import (
    BrokerDrained,
    BrokerFenced,
    BrokerRegistered,
    BrokerStopping,
    BrokerUnfenced,
    BrokerUnregistered,
    ClusterIdSet,
    ConfigRemoved,
    ConfigSet,
    FeatureLevelSet,
    PartitionChanged,
    ProducerIdsAllocated,
)
from penstock.core.model import ApiError, BrokerEpoch, ErrorKind, NodeId

# The configuration key that drains a broker; the broker's state follows it.
DRAINED = "broker.drained"
PRODUCER_IDS_PER_BLOCK = 1_000
# As long as `cluster.session_timeout_ms` can be.
SESSION_MS_MAX = 600_000
_INT64_MAX = 2**63 - 1
GROUP_VERSION = "group.version"
SHARE_VERSION = "share.version"
# What this version reads and writes.
SUPPORTED_FEATURES = (
    FeatureRange("eligible.leader.replicas.version", 0, 1),
    FeatureRange(GROUP_VERSION, 0, 1),
    FeatureRange(METADATA_VERSION, LOWEST_LEVEL, HIGHEST_LEVEL),
    FeatureRange(SHARE_VERSION, 0, 1),
    FeatureRange("transaction.version", 0, 2),
)
# What a cluster can be set to, and announces. A level that would change nothing is not among it: eligible
# leaders are always kept. Clusters may have been at such a level.
OFFERED_FEATURES = (
    FeatureRange("eligible.leader.replicas.version", 1, 1),
    FeatureRange(GROUP_VERSION, 0, 1),
    FeatureRange(METADATA_VERSION, LOWEST_LEVEL, HIGHEST_LEVEL),
    FeatureRange(SHARE_VERSION, 0, 1),
    FeatureRange("transaction.version", 0, 2),
)
_RANGES = {known.name: known for known in OFFERED_FEATURES}
DEFAULT_LEVELS = tuple((known.name, known.highest) for known in OFFERED_FEATURES if known.highest > 0)


def register_broker(
    image: MetadataImage, command: RegisterBroker, around: ControllerConfig
) -> MetadataDecision:
    former = image.broker(command.node_id)
    if former is not None and former.incarnation == command.incarnation != NO_INCARNATION:
        # The same registration again: its response was lost, or the request was duplicated.
        return DecisionBuilder(image).decision(RegisteredBroker(former.epoch))
    error = _late_registration(former, command) or _problem_with_registration(image, command)
    if error is not None:
        return error_decision(error.kind, error.detail)
    epoch = BrokerEpoch(image.last_broker_epoch + 1)
    broker = Broker(
        command.node_id,
        epoch,
        command.directory_id,
        command.listeners,
        command.rack,
        command.features,
        command.previous_epoch,
        command.fenced,
        drained=_is_drained(image, command.node_id),
        synced=command.synced,
        incarnation=command.incarnation,
        session_ms=command.session_ms,
    )
    draft = DecisionBuilder(image)
    draft.add(BrokerRegistered(broker))
    _reconsider(draft, command.node_id, around, restarted=True, loss=_loss(former, command))
    return draft.decision(RegisteredBroker(epoch))


def _loss(former: Broker | None, command: RegisterBroker) -> ReplicaLoss:
    """What a broker may have lost since its last incarnation, whose fsync mode counts as well."""
    if former is None:
        return ReplicaLoss.NOTHING
    if command.directory_id != former.directory_id:
        return ReplicaLoss.EVERYTHING
    survived = command.previous_epoch == former.epoch
    kept_all = survived or (command.synced and former.synced)
    return ReplicaLoss.NOTHING if kept_all else ReplicaLoss.DOUBTFUL


def _late_registration(former: Broker | None, command: RegisterBroker) -> ApiError | None:
    known = command.known_epoch
    if former is None or known is None or former.epoch <= known:
        return None
    detail = f"broker {command.node_id} is at epoch {former.epoch}, this registration knows only {known}"
    return ApiError(ErrorKind.STALE_BROKER_EPOCH, detail)


def _problem_with_registration(image: MetadataImage, command: RegisterBroker) -> ApiError | None:
    if image.cluster_id != command.cluster_id:
        detail = f"this is cluster {image.cluster_id}, the broker belongs to {command.cluster_id}"
        return ApiError(ErrorKind.INCONSISTENT_CLUSTER, detail)
    if command.node_id < 0 or not 0 <= command.session_ms <= SESSION_MS_MAX:
        # Whoever registers for ever and is never heard of again would keep its replicas as long.
        detail = f"{command.node_id} with a session of {command.session_ms} ms is not a valid broker"
        return ApiError(ErrorKind.INVALID_REQUEST, detail)
    former = image.broker(command.node_id)
    if former is not None and not former.fenced and former.directory_id != command.directory_id:
        detail = f"broker {command.node_id} is live with another data directory"
        return ApiError(ErrorKind.DUPLICATE_BROKER, detail)
    for other in image.each_broker():
        if other.directory_id == command.directory_id and other.node_id != command.node_id:
            detail = f"the data directory belongs to broker {other.node_id}"
            return ApiError(ErrorKind.DUPLICATE_BROKER, detail)
    broker = Broker(command.node_id, BrokerEpoch(0), command.directory_id, features=command.features)
    for feature, level in image.features.items():
        if not broker.supports(feature, level):
            detail = f"the cluster uses {feature} at level {level}, which the broker does not support"
            return ApiError(ErrorKind.INVALID_FEATURE_LEVEL, detail)
    return None


def fence_broker(image: MetadataImage, command: FenceBroker, around: ControllerConfig) -> MetadataDecision:
    broker = known_broker(image, command.node_id, command.epoch)
    if isinstance(broker, ApiError):
        return error_decision(broker.kind, broker.detail)
    draft = DecisionBuilder(image)
    if not broker.fenced:
        draft.add(BrokerFenced(broker.node_id, broker.epoch))
        _reconsider(draft, broker.node_id, around)
    return draft.decision(Ok())


def report_replicas(
    image: MetadataImage, command: ReportReplicas, around: ControllerConfig
) -> MetadataDecision:
    """Note what a broker found in its logs, and elect where it was the last that was waited for."""
    broker = known_broker(image, command.node_id, command.epoch)
    if isinstance(broker, ApiError):
        return error_decision(broker.kind, broker.detail)
    rules = ElectionRules(image, around)
    draft = DecisionBuilder(image)
    for row in command.reports:
        topic = draft.image.topic_by_id(row.topic_id)
        partition = None if topic is None else topic.partition(row.partition)
        if topic is None or partition is None:
            continue
        minimum, unclean = rules.of(topic)
        loss = row.loss
        if row.last_epoch > partition.leader_epoch:
            # No such epoch has begun: its log is damaged where no checksum tells.
            loss = max(loss, ReplicaLoss.RANGE)
        report = ReplicaReport(
            broker.node_id, broker.epoch, row.last_epoch, row.end, loss, row.former_end, row.leader_epoch
        )
        after = reported(partition, report, minimum)
        after = elected(after, draft.image, minimum, unclean=unclean)
        changed = with_epochs(partition, settled(after, draft.image, minimum))
        if changed is not None:
            draft.add(PartitionChanged(topic.id, changed))
    return draft.decision(Ok())


def unfence_broker(
    image: MetadataImage, command: UnfenceBroker, around: ControllerConfig
) -> MetadataDecision:
    broker = known_broker(image, command.node_id, command.epoch)
    if isinstance(broker, ApiError):
        return error_decision(broker.kind, broker.detail)
    draft = DecisionBuilder(image)
    if broker.fenced:
        draft.add(BrokerUnfenced(broker.node_id, broker.epoch))
        _reconsider(draft, broker.node_id, around)
    return draft.decision(Ok())


def stop_broker(
    image: MetadataImage, command: BeginControlledShutdown, around: ControllerConfig
) -> MetadataDecision:
    """Controlled shutdown. Repeating the command returns what the broker still leads."""
    broker = known_broker(image, command.node_id, command.epoch)
    if isinstance(broker, ApiError):
        return error_decision(broker.kind, broker.detail)
    draft = DecisionBuilder(image)
    if not broker.stopping:
        draft.add(BrokerStopping(broker.node_id, broker.epoch))
    return draft.decision(_reconsider(draft, broker.node_id, around))


def drain_broker(image: MetadataImage, command: DrainBroker, around: ControllerConfig) -> MetadataDecision:
    broker = image.broker(command.node_id)
    if broker is None:
        return error_decision(ErrorKind.UNKNOWN_BROKER, f"there is no broker {command.node_id}")
    draft = DecisionBuilder(image)
    name = str(broker.node_id)
    if command.undo:
        draft.add(ConfigRemoved(ConfigResourceType.BROKER, name, DRAINED))
    else:
        draft.add(ConfigSet(ConfigResourceType.BROKER, name, DRAINED, "true"))
    return draft.decision(follow_drain(draft, broker.node_id, around))


def follow_drain(draft: DecisionBuilder, node_id: NodeId, around: ControllerConfig) -> RemainingLeaderships:
    """Drain a broker, or end that, as its configuration says now."""
    broker = draft.image.broker(node_id)
    drained = _is_drained(draft.image, node_id)
    if broker is not None and broker.drained is not drained:
        draft.add(BrokerDrained(node_id, drained=drained))
    return _reconsider(draft, node_id, around)


def _is_drained(image: MetadataImage, node_id: NodeId) -> bool:
    return (
        image.config(ConfigResourceType.BROKER, str(node_id)).get(DRAINED, "false").strip().lower() == "true"
    )


def unregister_broker(
    image: MetadataImage, command: UnregisterBroker, around: ControllerConfig
) -> MetadataDecision:
    broker = image.broker(command.node_id)
    if broker is None:
        return error_decision(ErrorKind.UNKNOWN_BROKER, f"there is no broker {command.node_id}")
    if not broker.fenced:
        detail = f"broker {command.node_id} is live: stop it before you unregister it"
        return error_decision(ErrorKind.INVALID_REQUEST, detail)
    draft = DecisionBuilder(image)
    draft.add(BrokerUnregistered(broker.node_id, broker.epoch))
    _reconsider(draft, broker.node_id, around, loss=ReplicaLoss.EVERYTHING)
    return draft.decision(Ok())


def known_broker(image: MetadataImage, node_id: NodeId, epoch: BrokerEpoch) -> Broker | ApiError:
    """The broker, if `epoch` is its present one."""
    broker = image.broker(node_id)
    if broker is None:
        return ApiError(ErrorKind.UNKNOWN_BROKER, f"there is no broker {node_id}")
    if broker.epoch != epoch:
        return ApiError(
            ErrorKind.STALE_BROKER_EPOCH, f"broker {node_id} is at epoch {broker.epoch}, not {epoch}"
        )
    return broker


def _reconsider(
    draft: DecisionBuilder,
    node_id: NodeId,
    around: ControllerConfig,
    *,
    restarted: bool = False,
    loss: ReplicaLoss = ReplicaLoss.NOTHING,
) -> RemainingLeaderships:
    """Look again at every partition with a replica on the broker; returns what it has then."""
    rules = ElectionRules(draft.image, around)
    leading = replicas = 0
    for topic, partition in draft.image.partitions_of(node_id):
        minimum, unclean = rules.of(topic)
        # What it found in its log before it restarted says nothing about now.
        known = without_report(partition, node_id) if restarted or loss else partition
        after = reconsidered(known, draft.image, node_id, minimum, unclean=unclean, loss=loss)
        # A leader that restarted must not write under the epoch of its former incarnation.
        renew = restarted and partition.leader == node_id
        changed = with_epochs(partition, after, renew=renew)
        if changed is not None:
            # A broker has thousands of partitions, and none of these facts depends on another.
            draft.note(PartitionChanged(topic.id, changed))
        replicas += node_id in after.replicas
        leading += after.leader == node_id
    return RemainingLeaderships(leading, replicas)


def form_cluster(image: MetadataImage, command: BootstrapCluster) -> MetadataDecision:
    if image.cluster_id is not None:
        return error_decision(
            ErrorKind.INCONSISTENT_CLUSTER, f"the cluster exists already, with id {image.cluster_id}"
        )
    if not command.cluster_id:
        return error_decision(ErrorKind.INVALID_REQUEST, "a cluster needs an id")
    levels = DEFAULT_LEVELS if command.levels is None else command.levels
    draft = DecisionBuilder(image)
    draft.add(ClusterIdSet(command.cluster_id))
    for name, level in sorted(levels):
        complaint = _unsupported(image, name, level)
        if complaint is not None:
            return error_decision(ErrorKind.INVALID_FEATURE_LEVEL, complaint)
        draft.add(FeatureLevelSet(name, level))
    return draft.decision(Ok())


def update_features(image: MetadataImage, command: UpdateFeatures) -> MetadataDecision:
    names = [update.name for update in command.updates]
    if not names or len(frozenset(names)) != len(names):
        return error_decision(ErrorKind.INVALID_REQUEST, "each feature is updated once, and at least one is")
    draft = DecisionBuilder(image)
    for update in command.updates:
        complaint = _problem_with_update(image, update)
        if complaint is not None:
            return error_decision(ErrorKind.INVALID_FEATURE_LEVEL, complaint)
        if update.level != image.feature_level(update.name):
            draft.add(FeatureLevelSet(update.name, update.level))
    return draft.decision(Ok(), validate_only=command.validate_only)


def _problem_with_update(image: MetadataImage, update: FeatureUpdate) -> str | None:
    present = image.feature_level(update.name)
    complaint = _unsupported(image, update.name, update.level)
    if complaint is not None:
        return complaint
    if update.level < present and update.name == METADATA_VERSION:
        return f"{update.name} is at level {present} and never goes back: what was written there stays"
    if update.level < present and update.direction is UpgradeType.UPGRADE:
        return f"{update.name} is at level {present}: {update.level} needs a downgrade type in the request"
    if update.level > present and update.direction is not UpgradeType.UPGRADE:
        return f"{update.name} is at level {present}: {update.level} is not a downgrade"
    return None


def _unsupported(image: MetadataImage, name: str, level: int) -> str | None:
    known = _RANGES.get(name)
    if known is None:
        return f"there is no feature {name!r}"
    if not known.lowest <= level <= known.highest:
        return f"{name} has levels {known.lowest} to {known.highest}, not {level}"
    for broker in image.each_broker():
        if not broker.supports(name, level):
            return f"broker {broker.node_id} does not support {name} at level {level}"
    return None


def allocate_producer_ids(image: MetadataImage, command: AllocateProducerIds) -> MetadataDecision:
    broker = known_broker(image, command.node_id, command.broker_epoch)
    if isinstance(broker, ApiError):
        return error_decision(broker.kind, broker.detail)
    start = image.next_producer_id
    if start > _INT64_MAX - PRODUCER_IDS_PER_BLOCK:
        return error_decision(ErrorKind.INVALID_REQUEST, "every producer id has been given out")
    draft = DecisionBuilder(image)
    draft.add(ProducerIdsAllocated(broker.node_id, broker.epoch, start, PRODUCER_IDS_PER_BLOCK))
    return draft.decision(ProducerIdBlock(start, PRODUCER_IDS_PER_BLOCK))
