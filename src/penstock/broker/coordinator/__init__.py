"""Replicated machines on internal topics: one runtime for groups, transactions and queues.

    runtime         one coordinator: a machine on a partition
    coordinators    the coordinators of one internal topic
    log_replay      rebuilds machines from their logs
    log_rewrite     keeps the logs short
    groups          consumer groups on this node
    group_records   their facts in Kafka's schemas
    group_metrics   their metrics and lag
    transactions    transactions on this node
    transaction_records, transaction_metrics
    queues          queues on this node
    queue_records, queue_metrics

    Coordinators ── key, hashed as Kafka does ──► Coordinator ── CoordinatorMachine (core, decides)
      │                                              ├── LeaderPartition: append, committed
      │ on_metadata: take over, close                ├── LogReplay: the log, read in small steps
      └ find, locate                                 └── LogRewrite: the log, kept short

A machine decides: a command leads to facts, replies and events. The runtime appends the facts as
records under the leader epoch that it was made for, applies them, and releases the replies, errors
and reads included, when the log end seen at the decision is committed.

A new leader reads its log once all of it is known to be committed; until then, commands get
COORDINATOR_LOADING. While too few replicas are in sync, those that would write get
COORDINATOR_NOT_AVAILABLE. When the partition moves to another node or fails, the machine is dropped
and every command that waits, parked ones included, gets NOT_COORDINATOR. An append that fails
without stopping the partition (a full disk) drops the machine too, and rebuilds it from the log. A
log that cannot be read is tried again, less and less often.

Internal topics but that of queues are compacted like any other, which leaves the active segment alone; so
`LogRewrite` writes the state again at the end of the log when the log has grown to several times
its size, and deletes what is before.

A machine plugs in by a `CoordinatorSpec`: `runtime` says what it needs, and
consumer groups (`groups`) are the example.

Left out: machines that span partitions; replies that need not wait for the log.
"""

from penstock.broker.coordinator.coordinators import (
    KEY_CHARS_MAX,
    Coordinators,
    InternalTopicCreator,
    LedPartitions,
    java_hash,
    partition_of,
)
from penstock.broker.coordinator.runtime import (
    Coordinator,
    CoordinatorCommand,
    CoordinatorContext,
    CoordinatorMachine,
    CoordinatorObserver,
    CoordinatorOptions,
    CoordinatorOutcome,
    CoordinatorSpec,
    CoordinatorState,
    RecordCodec,
)

__all__ = [
    "Coordinators",
    "Coordinator",
    "CoordinatorSpec",
    "CoordinatorMachine",
    "CoordinatorCommand",
    "CoordinatorOutcome",
    "CoordinatorObserver",
    "RecordCodec",
    "CoordinatorOptions",
    "CoordinatorContext",
    "CoordinatorState",
    "InternalTopicCreator",
    "LedPartitions",
    "KEY_CHARS_MAX",
    "partition_of",
    "java_hash",
]
