"""Whole clusters in the simulator: every service of production on every node, and their clients.

    ClusterWorld ── ClusterNode (N)    app.Backstage on a crashable disk and skewed clocks
       │                └── Door       what the Kafka gateway does, without its bytes
       ├── SureProducer                idempotent, five in flight, acks=all: loses nothing
       ├── HastyProducer               acks=1, never repeats itself: may lose, must not lie
       ├── Consumer                    assigns itself, polls, goes back to the start
       ├── Member                      of a group: joins, reads, commits, crashes
       ├── Admin                       makes, grows, configures and deletes topics
       └── Journal                     what all of them were told, for the checkers

Clients live outside of the nodes, on hosts of their own: they know addresses, find leaders and
coordinators by asking, lose requests and answers when a node dies or the network is cut, and lose
patience. A run ends with everything repaired; the cluster must come to rest within bounded time,
and then every partition is read to its end, every replica compared, every acknowledgement checked.

Left out: the Kafka protocol's bytes, which are tested on real sockets; transactions and queues,
which are not there yet; a change of members.
"""

from penstock.simulation.cluster.node import ClusterNode, MakeBackstage
from penstock.simulation.cluster.options import ClusterOptions
from penstock.simulation.cluster.run import draw_plan, run_cluster
from penstock.simulation.cluster.world import ClusterWorld

__all__ = ["run_cluster", "ClusterOptions", "ClusterWorld", "ClusterNode", "MakeBackstage", "draw_plan"]
