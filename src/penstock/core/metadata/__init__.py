"""What the cluster agrees on: topics, partitions, brokers, configuration, feature levels.

One replicated machine. A command is judged against an image (`MetadataMachine.decide`) and
becomes facts, which are appended to the metadata log and applied (`apply`); the image after
any prefix of the log is the same everywhere.

    command ──decide──▶ facts ──log──▶ apply ──▶ next image
                 ▲                                   │
                 └───────────── image ◀──────────────┘

Images never change. They are built of maps and sequences that share what two versions have
in common (`sharing`), so the controller's speculative image, the committed image of a
broker and the image somebody still compares with are three references, not three copies.
A snapshot is an image as a list of facts.

Modules by reader: `commands`, `replies` and `image` are what a service codes against;
`facts` and `envelope` are the format of the log; `decisions` is the judgement behind each
command; `configs` is the table of every configuration key and `effective` says which value
counts. The format is a cluster's from the start: leaders, ISR, epochs and ELR (KIP-966) are
there for one node too.

Left out: the log, its offsets and its snapshots on disk belong to the host; broker sessions
do as well (silence becomes a `FenceBroker`). Which log is the longest is nobody's knowledge
here: where every complete replica lost records, an operator chooses. ACLs, quotas and SCRAM
credentials come with the parts that need them, as new facts.
"""

from penstock.core.metadata.applying import applied, replayed
from penstock.core.metadata.commands import (
    BY_DEFAULT,
    AllocateProducerIds,
    AlterConfigs,
    Assignment,
    BalanceLeaders,
    ChangePartition,
    Command,
    ConfigChange,
    ConfigOperation,
    CreatePartitions,
    CreateTopic,
    DeleteTopic,
    Direction,
    DrainBroker,
    Election,
    ElectLeader,
    FeatureUpdate,
    FenceBroker,
    FormCluster,
    IncrementalAlterConfigs,
    IsrMember,
    ReassignPartition,
    RegisterBroker,
    ResignReplica,
    StopBroker,
    UnfenceBroker,
    UnregisterBroker,
    UpdateFeatures,
    WidenInternalTopics,
)
from penstock.core.metadata.decisions.draft import MetadataDecision, Surroundings
from penstock.core.metadata.decisions.features import (
    DEFAULT_LEVELS,
    METADATA_VERSION,
    PRODUCER_IDS_PER_BLOCK,
    SUPPORTED_FEATURES,
)
from penstock.core.metadata.effective import (
    ALL_BROKERS,
    broker_setting,
    describe_configs,
    layers_for,
    options_of,
)
from penstock.core.metadata.envelope import FORMAT_VERSION, decode_fact, encode_fact
from penstock.core.metadata.facts import (
    BrokerDrained,
    BrokerEpochReserved,
    BrokerFenced,
    BrokerRegistered,
    BrokerStopping,
    BrokerUnfenced,
    BrokerUnregistered,
    ClusterIdSet,
    ConfigRemoved,
    ConfigSet,
    Fact,
    FeatureLevelSet,
    PartitionChanged,
    PartitionCreated,
    ProducerIdsAllocated,
    TopicCreated,
    TopicDeleted,
)
from penstock.core.metadata.image import EMPTY_IMAGE, MetadataImage
from penstock.core.metadata.machine import MetadataMachine
from penstock.core.metadata.names import (
    DELAYED_TOPIC,
    INTERNAL_TOPICS,
    OFFSETS_TOPIC,
    QUEUES_TOPIC,
    TRANSACTIONS_TOPIC,
    is_internal,
    problem_with_name,
)
from penstock.core.metadata.replies import (
    BalancedLeaders,
    ChangedPartition,
    CreatedPartitions,
    CreatedTopic,
    DeletedTopic,
    Done,
    LeavingBroker,
    ProducerIdBlock,
    RegisteredBroker,
    Reply,
    StartedMoves,
)
from penstock.core.metadata.snapshot import snapshot
from penstock.core.metadata.state import (
    NO_BROKER_EPOCH,
    NO_LEADER,
    NO_LEADER_EPOCH,
    PEER_LISTENER,
    Broker,
    ConfigResource,
    FeatureRange,
    Listener,
    Partition,
    ResourceKind,
    Topic,
)

__all__ = [
    # The machine
    "MetadataMachine",
    "MetadataDecision",
    "Surroundings",
    "MetadataImage",
    "EMPTY_IMAGE",
    "applied",
    "replayed",
    "snapshot",
    # Commands
    "Command",
    "FormCluster",
    "RegisterBroker",
    "FenceBroker",
    "UnfenceBroker",
    "StopBroker",
    "DrainBroker",
    "UnregisterBroker",
    "CreateTopic",
    "Assignment",
    "BY_DEFAULT",
    "DeleteTopic",
    "CreatePartitions",
    "AlterConfigs",
    "IncrementalAlterConfigs",
    "ConfigChange",
    "ConfigOperation",
    "AllocateProducerIds",
    "UpdateFeatures",
    "FeatureUpdate",
    "Direction",
    "ChangePartition",
    "IsrMember",
    "ResignReplica",
    "ElectLeader",
    "BalanceLeaders",
    "ReassignPartition",
    "WidenInternalTopics",
    "Election",
    # Replies
    "Reply",
    "Done",
    "RegisteredBroker",
    "LeavingBroker",
    "CreatedTopic",
    "DeletedTopic",
    "CreatedPartitions",
    "ProducerIdBlock",
    "ChangedPartition",
    "BalancedLeaders",
    "StartedMoves",
    # What an image holds
    "Broker",
    "Listener",
    "PEER_LISTENER",
    "FeatureRange",
    "Topic",
    "Partition",
    "NO_LEADER",
    "NO_LEADER_EPOCH",
    "NO_BROKER_EPOCH",
    "ResourceKind",
    "ConfigResource",
    # Facts
    "Fact",
    "ClusterIdSet",
    "FeatureLevelSet",
    "BrokerRegistered",
    "BrokerFenced",
    "BrokerUnfenced",
    "BrokerStopping",
    "BrokerDrained",
    "BrokerUnregistered",
    "BrokerEpochReserved",
    "TopicCreated",
    "TopicDeleted",
    "PartitionCreated",
    "PartitionChanged",
    "ConfigSet",
    "ConfigRemoved",
    "ProducerIdsAllocated",
    "FORMAT_VERSION",
    "encode_fact",
    "decode_fact",
    # Configuration that counts
    "ALL_BROKERS",
    "layers_for",
    "options_of",
    "describe_configs",
    "broker_setting",
    # Names and levels
    "OFFSETS_TOPIC",
    "TRANSACTIONS_TOPIC",
    "QUEUES_TOPIC",
    "DELAYED_TOPIC",
    "INTERNAL_TOPICS",
    "is_internal",
    "problem_with_name",
    "METADATA_VERSION",
    "SUPPORTED_FEATURES",
    "DEFAULT_LEVELS",
    "PRODUCER_IDS_PER_BLOCK",
]
