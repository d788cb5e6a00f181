"""What the cluster agrees on: topics, partitions, brokers, configuration, feature levels.

One replicated machine. A command is checked against an image (`MetadataMachine.decide`) and
becomes facts, which are appended to the metadata log and applied (`apply`); the image after
any prefix of the log is the same everywhere.

    command ──decide──▶ facts ──log──▶ apply ──▶ next image
                 ▲                                   │
                 └───────────── image ◀──────────────┘

Images never change. They are built of maps and sequences that share what two versions have
in common, so the controller's speculative image, the committed image of a broker and an older
image kept for comparison are three references, not three copies. A snapshot is an image as a
list of facts. The modules:

* `machine` is the machine; `commands` are its commands and replies, `image` its state;
* `records` are the facts, the format of the log; `apply` is how each changes the image;
* `decision` is what the decisions share; `decide_brokers`, `decide_topics`, `decide_partitions`,
  `decide_reassignment`, `decide_configs` and `decide_access` decide the commands; `elections` says who leads,
  `placement` which brokers get replicas;
* `levels` is what may be written while nodes of an older version are there;
* `configs` is the table of every configuration key, `effective_configs` says which value counts;
* `access` is what is stored of access rules, credentials, API keys and client quotas;
* `topic_names` says which names a topic may have.

The format is a cluster's from the start: leaders, ISR, epochs and ELR (KIP-966) are there for
one node too.

Left out: the log, its offsets and its snapshots on disk belong to the host; broker sessions
do as well (silence becomes a `FenceBroker`), and the wait for reports (its end becomes an
`ElectReported`). Who logs in and what access rules mean for a request is judged in `penstock.security`.
"""

from penstock.core.metadata.apply import apply, replay
from penstock.core.metadata.commands import (
    BY_DEFAULT,
    AllocateProducerIds,
    AlterConfigs,
    AlteredPartition,
    AlterPartition,
    BalancedLeaders,
    BalanceLeaders,
    BeginControlledShutdown,
    BootstrapCluster,
    Command,
    ConfigChange,
    ConfigOperation,
    CreatedPartitions,
    CreatedTopic,
    CreatePartitions,
    CreateTopic,
    DeletedTopic,
    DeleteTopic,
    DeposeLeader,
    DrainBroker,
    ElectionType,
    ElectLeader,
    ElectReported,
    FeatureUpdate,
    FenceBroker,
    IncrementalAlterConfigs,
    IsrMember,
    Ok,
    PartitionReport,
    ProducerIdBlock,
    ReassignPartition,
    RegisterBroker,
    RegisteredBroker,
    RemainingLeaderships,
    ReplicaAssignment,
    Reply,
    ReportReplicas,
    ResignReplica,
    StartedReassignments,
    UnfenceBroker,
    UnregisterBroker,
    UpdateFeatures,
    UpgradeType,
    WidenInternalTopics,
)
from penstock.core.metadata.decide_brokers import (
    DEFAULT_LEVELS,
    GROUP_VERSION,
    OFFERED_FEATURES,
    PRODUCER_IDS_PER_BLOCK,
    SHARE_VERSION,
    SUPPORTED_FEATURES,
)
from penstock.core.metadata.decision import ControllerConfig, MetadataDecision
from penstock.core.metadata.effective_configs import (
    ALL_BROKERS,
    broker_setting,
    describe_configs,
    layers_for,
    options_of,
)
from penstock.core.metadata.image import (
    DEFAULT_SESSION_MS,
    EMPTY_IMAGE,
    NO_BROKER_EPOCH,
    NO_INCARNATION,
    NO_LEADER,
    NO_LEADER_EPOCH,
    PEER_LISTENER,
    UNKNOWN_END,
    Broker,
    BrokerEndpoint,
    ConfigResource,
    ConfigResourceType,
    FeatureRange,
    MetadataImage,
    Partition,
    ReplicaLoss,
    ReplicaReport,
    Topic,
    supports,
)
from penstock.core.metadata.levels import METADATA_VERSION, LevelTooHigh
from penstock.core.metadata.machine import MetadataMachine, problem_with_level
from penstock.core.metadata.records import (
    FORMAT_VERSION,
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
    decode_fact,
    encode_fact,
    snapshot,
)
from penstock.core.metadata.topic_names import (
    AUDIT_TOPIC,
    DELAYED_TOPIC,
    INTERNAL_TOPICS,
    OFFSETS_TOPIC,
    QUEUES_TOPIC,
    TRANSACTIONS_TOPIC,
    is_internal,
    problem_with_name,
)

__all__ = [
    # The machine
    "MetadataMachine",
    "MetadataDecision",
    "ControllerConfig",
    "MetadataImage",
    "EMPTY_IMAGE",
    "apply",
    "replay",
    "snapshot",
    # Commands
    "Command",
    "BootstrapCluster",
    "RegisterBroker",
    "FenceBroker",
    "ReportReplicas",
    "PartitionReport",
    "UnfenceBroker",
    "BeginControlledShutdown",
    "DrainBroker",
    "UnregisterBroker",
    "CreateTopic",
    "ReplicaAssignment",
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
    "UpgradeType",
    "AlterPartition",
    "IsrMember",
    "ResignReplica",
    "DeposeLeader",
    "ElectLeader",
    "ElectReported",
    "BalanceLeaders",
    "ReassignPartition",
    "WidenInternalTopics",
    "ElectionType",
    # Replies
    "Reply",
    "Ok",
    "RegisteredBroker",
    "RemainingLeaderships",
    "CreatedTopic",
    "DeletedTopic",
    "CreatedPartitions",
    "ProducerIdBlock",
    "AlteredPartition",
    "BalancedLeaders",
    "StartedReassignments",
    # What an image holds
    "Broker",
    "BrokerEndpoint",
    "PEER_LISTENER",
    "FeatureRange",
    "Topic",
    "Partition",
    "ReplicaReport",
    "ReplicaLoss",
    "NO_INCARNATION",
    "NO_LEADER",
    "NO_LEADER_EPOCH",
    "DEFAULT_SESSION_MS",
    "NO_BROKER_EPOCH",
    "UNKNOWN_END",
    "ConfigResourceType",
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
    "AUDIT_TOPIC",
    "is_internal",
    "problem_with_name",
    "METADATA_VERSION",
    "LevelTooHigh",
    "supports",
    "problem_with_level",
    "SUPPORTED_FEATURES",
    "OFFERED_FEATURES",
    "GROUP_VERSION",
    "SHARE_VERSION",
    "DEFAULT_LEVELS",
    "PRODUCER_IDS_PER_BLOCK",
]
