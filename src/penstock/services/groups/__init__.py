"""Consumer groups on this node: one coordinator per partition of `__consumer_offsets` it leads.

    Groups ── group id, hashed as Kafka does ──► CoordinatorHost ── GroupCoordinator (core, decides)
      │                                              ├── Partition: append, acknowledged
      │ follow(image): take over, give up            ├── Loading: the log, read in small steps
      │                                              ├── Renewal: the log, kept short
      └ locate, list, lag                            └── Witness: metrics and events, Consumption

A command carries a `Ticket`; its `done` hears the reply, perhaps inside `submit`. Replies,
refusals and reads included, are given when the log end seen at the decision is acknowledged.
A new leader reads its log once all of it is known to be committed; until it has, commands
are refused with COORDINATOR_LOADING. While too few replicas are in sync, those that would
write are refused with COORDINATOR_NOT_AVAILABLE. When the partition goes to another node or
fails, the machine is dropped and every request that waits, parked joins included, is answered
with NOT_COORDINATOR. An append that fails without stopping the partition (a full disk) throws
the machine away too, and rebuilds it from the log. A log that cannot be read is tried again,
less and less often.

Facts become records in Kafka's own schemas (`records`). The offsets topic is compacted like any
other, which leaves its active segment alone; so `renewal` writes the state again at the end of
the log when the log has grown to several times its size, and deletes what is before.

Left out: offsets inside transactions, the KIP-848 and share protocols.
"""

from penstock.services.groups.consumption import Reader
from penstock.services.groups.groups import Groups, Leads, TopicMaker
from penstock.services.groups.host import CoordinatorHost, Phase
from penstock.services.groups.lag import Lag
from penstock.services.groups.metrics import GroupMetrics
from penstock.services.groups.options import GroupsOptions, options_of_node
from penstock.services.groups.placement import java_hash, partition_of
from penstock.services.groups.ticket import Done, Ticket

__all__ = [
    "Groups",
    "GroupsOptions",
    "options_of_node",
    "GroupMetrics",
    "Leads",
    "TopicMaker",
    "Ticket",
    "Done",
    "Lag",
    "Reader",
    "CoordinatorHost",
    "Phase",
    "partition_of",
    "java_hash",
]
