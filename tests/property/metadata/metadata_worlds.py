"""Random commands for a small cluster, most of them sensible and some of them not."""

from uuid import UUID

from hypothesis import strategies as st

from penstock.core.metadata import (
    ALL_BROKERS,
    NO_BROKER_EPOCH,
    SUPPORTED_FEATURES,
    AllocateProducerIds,
    AlterConfigs,
    AlterPartition,
    BalanceLeaders,
    BeginControlledShutdown,
    BootstrapCluster,
    Command,
    ConfigChange,
    ConfigOperation,
    ConfigResource,
    ConfigResourceType,
    CreatePartitions,
    CreateTopic,
    DeleteTopic,
    DrainBroker,
    ElectionType,
    ElectLeader,
    FeatureUpdate,
    FenceBroker,
    IncrementalAlterConfigs,
    IsrMember,
    MetadataImage,
    MetadataMachine,
    ReassignPartition,
    RegisterBroker,
    ReplicaAssignment,
    ResignReplica,
    UnfenceBroker,
    UnregisterBroker,
    UpdateFeatures,
    UpgradeType,
    WidenInternalTopics,
)
from penstock.core.metadata.access import (
    AclBinding,
    AclFilter,
    AclOperation,
    AclPermission,
    ApiKey,
    PatternType,
    ResourceType,
    ScramCredential,
    ScramMechanism,
)
from penstock.core.metadata.commands import (
    AlterClientQuotas,
    AlterScramCredentials,
    CreateAcls,
    CreateApiKey,
    DeleteAcls,
    DeleteApiKey,
)
from penstock.core.model import BrokerEpoch, Instant, LeaderEpoch, NodeId, PartitionIndex, Timestamp, TopicId

CLUSTER = "c"
NODES = st.integers(1, 4).map(NodeId)
NAMES = st.sampled_from(["a", "b", "c.d", "c_d", "__consumer_offsets", "bad name"])
TOPIC_IDS = st.integers(1, 8).map(lambda number: TopicId(UUID(int=number)))
CONFIGS = st.sampled_from(
    [
        ("retention.ms", "1000"),
        ("retention.ms", "never"),
        ("min.insync.replicas", "1"),
        ("min.insync.replicas", "2"),
        ("min.insync.replicas", "3"),
        ("cleanup.policy", "compact"),
        ("broker.drained", "true"),
        ("unknown.key", "1"),
    ]
)
RESOURCES = st.one_of(
    st.builds(ConfigResource, st.just(ConfigResourceType.TOPIC), NAMES),
    st.builds(
        ConfigResource, st.just(ConfigResourceType.BROKER), st.sampled_from([ALL_BROKERS, "1", "7", "x"])
    ),
    st.just(ConfigResource(ConfigResourceType.GROUP, "g")),
)


def starting_points() -> st.SearchStrategy[MetadataMachine]:
    """Nothing at all, or a cluster that is in the middle of its history already."""
    return st.sampled_from([False, True, True]).map(
        lambda running: running_cluster() if running else MetadataMachine()
    )


def running_cluster() -> MetadataMachine:
    """Three live brokers and a topic that each of them has a replica of."""
    machine = MetadataMachine()
    nodes = tuple(map(NodeId, (1, 2, 3)))
    first: list[Command] = [BootstrapCluster(CLUSTER)]
    first += [registration(node_id, fenced=False) for node_id in nodes]
    first += [
        CreateTopic("a", TopicId(UUID(int=1)), assignments=(ReplicaAssignment(PartitionIndex(0), nodes),))
    ]
    for command in first:
        machine.replay(machine.decide(command, Instant(0)).facts)
    assert machine.image.partition_count == 1
    return machine


def registration(
    node_id: NodeId,
    previous_epoch: BrokerEpoch = NO_BROKER_EPOCH,
    *,
    synced: bool = True,
    fenced: bool,
    disk: int = 100,
) -> RegisterBroker:
    return RegisterBroker(
        CLUSTER,
        node_id,
        UUID(int=disk + node_id),
        features=SUPPORTED_FEATURES,
        previous_epoch=previous_epoch,
        synced=synced,
        fenced=fenced,
    )


def epoch_of(image: MetadataImage, node_id: NodeId) -> BrokerEpoch:
    broker = image.broker(node_id)
    return BrokerEpoch(0) if broker is None else broker.epoch


@st.composite
def topic_commands(draw: st.DrawFn) -> Command:
    name = draw(NAMES)
    configs = tuple(draw(st.lists(CONFIGS, max_size=2)))
    validate_only = draw(st.integers(0, 9)) == 0
    match draw(st.integers(0, 7)):
        case 0 | 1:
            count, factor = draw(st.integers(-1, 5)), draw(st.integers(-1, 4))
            return CreateTopic(name, draw(TOPIC_IDS), count, factor, (), configs, validate_only)
        case 2:
            rows = draw(st.lists(st.lists(NODES, max_size=3), min_size=1, max_size=3))
            hands = tuple(ReplicaAssignment(PartitionIndex(n), tuple(row)) for n, row in enumerate(rows))
            return CreateTopic(name, draw(TOPIC_IDS), assignments=hands, validate_only=validate_only)
        case 3:
            return DeleteTopic(topic_id=draw(TOPIC_IDS)) if draw(st.booleans()) else DeleteTopic(name)
        case 4:
            return CreatePartitions(name, draw(st.integers(0, 8)), validate_only=validate_only)
        case 5 | 6:
            index = PartitionIndex(draw(st.integers(0, 2)))
            target = st.lists(NODES, min_size=1, max_size=3, unique=True).map(tuple)
            return ReassignPartition(name, index, draw(st.one_of(st.none(), target, target)))
        case _:
            index = PartitionIndex(draw(st.integers(0, 2)))
            return ElectLeader(name, index, draw(st.sampled_from(ElectionType)))


@st.composite
def config_commands(draw: st.DrawFn) -> Command:
    resource = draw(RESOURCES)
    if draw(st.integers(0, 3)) == 0:
        return AlterConfigs(resource, tuple(draw(st.lists(CONFIGS, max_size=2))))
    operation = draw(st.sampled_from(ConfigOperation))
    key, value = draw(CONFIGS)
    return IncrementalAlterConfigs(resource, (ConfigChange(operation, key, value),))


USERS = st.sampled_from(["alice", "bob", ""])
ACLS = st.builds(
    AclBinding,
    st.sampled_from(ResourceType),
    st.sampled_from(PatternType),
    st.sampled_from(["a", "kafka-cluster", "*"]),
    st.sampled_from(["User:alice", "User:*", "bob"]),
    st.sampled_from(["*", "127.0.0.1", "nowhere"]),
    st.sampled_from(AclOperation),
    st.sampled_from(AclPermission),
)


@st.composite
def access_commands(draw: st.DrawFn) -> Command:
    user, mechanism = draw(USERS), draw(st.sampled_from(ScramMechanism))
    match draw(st.integers(0, 6)):
        case 0 | 1:
            return CreateAcls(tuple(draw(st.lists(ACLS, max_size=3))))
        case 2:
            return DeleteAcls((AclFilter(operation=draw(st.sampled_from(AclOperation))), AclFilter(name="a")))
        case 3:
            size = draw(st.sampled_from([32, 64]))
            credential = ScramCredential(user, mechanism, b"salt", 4_096, b"s" * size, b"k" * size)
            return AlterScramCredentials(user, (credential,))
        case 4:
            return AlterScramCredentials(user, removed=(mechanism,))
        case 5:
            id_ = draw(st.sampled_from(["k1", "k2"]))
            if draw(st.booleans()):
                return DeleteApiKey(id_)
            return CreateApiKey(ApiKey(id_, user, b"d" * 32, Timestamp(1)))
        case _:
            kinds = draw(st.lists(st.sampled_from(["user", "client-id", "ip"]), max_size=2))
            limit = draw(st.sampled_from([None, 1.0, -1.0]))
            return AlterClientQuotas(
                tuple((kind, draw(st.sampled_from([None, "127.0.0.1"]))) for kind in kinds),
                ((draw(st.sampled_from(["producer_byte_rate", "connection_creation_rate"])), limit),),
            )


@st.composite
def broker_commands(draw: st.DrawFn, image: MetadataImage) -> Command:
    node_id = draw(NODES)
    epoch = BrokerEpoch(epoch_of(image, node_id) - (draw(st.integers(0, 9)) == 0))
    match draw(st.integers(0, 9)):
        case 0 | 1:
            previous = epoch if draw(st.booleans()) else NO_BROKER_EPOCH
            synced, fenced = draw(st.booleans()), draw(st.booleans())
            disk = draw(st.sampled_from([100, 100, 100, 200]))
            return registration(node_id, previous, synced=synced, fenced=fenced, disk=disk)
        case 2 | 3:
            return FenceBroker(node_id, epoch)
        case 4 | 5:
            return UnfenceBroker(node_id, epoch)
        case 6 | 7:
            return BeginControlledShutdown(node_id, epoch)
        case 8:
            return DrainBroker(node_id, undo=draw(st.booleans()))
        case _:
            return AllocateProducerIds(node_id, epoch) if draw(st.booleans()) else UnregisterBroker(node_id)


@st.composite
def proposals(draw: st.DrawFn, image: MetadataImage) -> Command:
    """A replica's proposal, for a partition that exists if there is one at all."""
    topics = list(image.each_topic())
    if not topics:
        return draw(topic_commands())
    topic = draw(st.sampled_from(topics))
    partition = draw(st.sampled_from(list(topic.partitions)))
    if draw(st.integers(0, 4)) == 0:
        damaged = draw(st.sampled_from(partition.replicas))
        return ResignReplica(damaged, epoch_of(image, damaged), topic.id, partition.index)
    alive = tuple(node_id for node_id in partition.replicas if image.is_live(node_id))
    some = st.lists(st.sampled_from(partition.replicas), unique=True)
    wanted = draw(st.one_of(st.just(alive), some))
    isr = tuple(IsrMember(n, epoch_of(image, n)) for n in wanted)
    return AlterPartition(
        partition.leader,
        epoch_of(image, partition.leader),
        topic.id,
        partition.index,
        LeaderEpoch(partition.leader_epoch - draw(st.sampled_from([0, 0, 0, 1]))),
        partition.partition_epoch - draw(st.sampled_from([0, 0, 0, 1])),
        isr,
    )


@st.composite
def commands(draw: st.DrawFn, image: MetadataImage) -> Command:
    if image.cluster_id is None:
        return BootstrapCluster(CLUSTER)
    match draw(st.integers(0, 15)):
        case 0 | 1 | 2:
            return draw(topic_commands())
        case 3 | 4 | 14 | 15:
            return draw(st.one_of(config_commands(), access_commands()))
        case 5 | 6 | 7 | 8:
            return draw(broker_commands(image))
        case 9 | 10:
            return draw(proposals(image))
        case 11:
            return BalanceLeaders(moves_max=draw(st.integers(0, 2)))
        case 12:
            return WidenInternalTopics()
        case _:
            update = FeatureUpdate(
                "group.version", draw(st.integers(-1, 2)), draw(st.sampled_from(UpgradeType))
            )
            return UpdateFeatures((update,))


@st.composite
def replica_commands(draw: st.DrawFn, image: MetadataImage) -> Command:
    """Only what changes the replicas, the ISR and the leader of topic "a"."""
    index = PartitionIndex(0)
    match draw(st.integers(0, 9)):
        case 0 | 1 | 2 | 3:
            return draw(broker_commands(image))
        case 4 | 5 | 6:
            return draw(proposals(image))
        case 7:
            target = st.lists(NODES, min_size=1, max_size=3, unique=True).map(tuple)
            return ReassignPartition("a", index, draw(st.one_of(st.none(), target, target)))
        case 8:
            change = ConfigChange(ConfigOperation.SET, "min.insync.replicas", draw(st.sampled_from("123")))
            return IncrementalAlterConfigs(ConfigResource(ConfigResourceType.TOPIC, "a"), (change,))
        case _:
            return BalanceLeaders() if draw(st.booleans()) else ElectLeader("a", index)
