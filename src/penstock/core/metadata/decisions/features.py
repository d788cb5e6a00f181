"""The cluster's identity, its feature levels, and blocks of producer ids."""

from penstock.core.metadata.commands import (
    AllocateProducerIds,
    Direction,
    FeatureUpdate,
    FormCluster,
    UpdateFeatures,
)
from penstock.core.metadata.decisions.brokers import known_broker
from penstock.core.metadata.decisions.draft import Draft, MetadataDecision, refused
from penstock.core.metadata.facts import ClusterIdSet, FeatureLevelSet, ProducerIdsAllocated
from penstock.core.metadata.image import MetadataImage
from penstock.core.metadata.replies import Done, ProducerIdBlock
from penstock.core.metadata.state import FeatureRange
from penstock.core.model import Refused, Why

METADATA_VERSION = "metadata.version"
PRODUCER_IDS_PER_BLOCK = 1_000
_INT64_MAX = 2**63 - 1

# What this version reads and writes. The first format of ours announces the metadata level
# of Kafka 4.0, whose features it has, so that Kafka's tools can put a name to it.
SUPPORTED_FEATURES = (
    FeatureRange("eligible.leader.replicas.version", 0, 1),
    FeatureRange("group.version", 0, 1),
    FeatureRange(METADATA_VERSION, 25, 25),
    FeatureRange("share.version", 0, 1),
    FeatureRange("transaction.version", 0, 2),
)
_RANGES = {known.name: known for known in SUPPORTED_FEATURES}
DEFAULT_LEVELS = tuple((known.name, known.highest) for known in SUPPORTED_FEATURES)


def form_cluster(image: MetadataImage, command: FormCluster) -> MetadataDecision:
    if image.cluster_id is not None:
        return refused(Why.INCONSISTENT_CLUSTER, f"the cluster exists, it is {image.cluster_id}")
    if not command.cluster_id:
        return refused(Why.INVALID_REQUEST, "a cluster needs an id")
    levels = DEFAULT_LEVELS if command.levels is None else command.levels
    draft = Draft(image)
    draft.add(ClusterIdSet(command.cluster_id))
    for name, level in sorted(levels):
        complaint = _unsupported(image, name, level)
        if complaint is not None:
            return refused(Why.INVALID_FEATURE_LEVEL, complaint)
        draft.add(FeatureLevelSet(name, level))
    return draft.decision(Done())


def update_features(image: MetadataImage, command: UpdateFeatures) -> MetadataDecision:
    names = [update.name for update in command.updates]
    if not names or len(frozenset(names)) != len(names):
        return refused(Why.INVALID_REQUEST, "each feature is updated once, and at least one is")
    draft = Draft(image)
    for update in command.updates:
        complaint = _problem_with_update(image, update)
        if complaint is not None:
            return refused(Why.INVALID_FEATURE_LEVEL, complaint)
        if update.level != image.feature_level(update.name):
            draft.add(FeatureLevelSet(update.name, update.level))
    return draft.decision(Done(), validate_only=command.validate_only)


def _problem_with_update(image: MetadataImage, update: FeatureUpdate) -> str | None:
    present = image.feature_level(update.name)
    complaint = _unsupported(image, update.name, update.level)
    if complaint is not None:
        return complaint
    if update.level < present and update.direction is Direction.UPGRADE:
        return f"{update.name} is at level {present}: going back to {update.level} must be asked for"
    if update.level > present and update.direction is not Direction.UPGRADE:
        return f"{update.name} is at level {present}: {update.level} is no downgrade"
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
    if isinstance(broker, Refused):
        return refused(broker.why, broker.detail)
    start = image.next_producer_id
    if start > _INT64_MAX - PRODUCER_IDS_PER_BLOCK:
        return refused(Why.INVALID_REQUEST, "every producer id has been given out")
    draft = Draft(image)
    draft.add(ProducerIdsAllocated(broker.node_id, broker.epoch, start, PRODUCER_IDS_PER_BLOCK))
    return draft.decision(ProducerIdBlock(start, PRODUCER_IDS_PER_BLOCK))
