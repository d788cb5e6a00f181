"""Consumer groups on this node: the machine of `core.groups` on the coordinators of `__consumer_offsets`.

    Groups ── group id ──► services.coordinator ── GroupCoordinator (core, decides)
      │                        ├── records: facts in Kafka's own schemas
      │                        └── GroupMetricsRecorder: figures and events, Consumption
      └ list, lag

What is replied when, and what becomes of those who wait when a partition moves or fails, is the
coordinator runtime's; here is what is of groups alone.

Left out: offsets inside transactions, the KIP-848 and share protocols.
"""

from penstock.services.groups.groups import GroupPartitions, Groups
from penstock.services.groups.lag import Lag
from penstock.services.groups.metrics import GroupMetrics, Reader
from penstock.services.groups.options import GroupsOptions, options_of_node

__all__ = [
    "Groups",
    "GroupsOptions",
    "options_of_node",
    "GroupMetrics",
    "GroupPartitions",
    "Lag",
    "Reader",
]
