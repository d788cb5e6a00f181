"""The composition root: builds, starts and stops one node.

    run_node(options)
      └ the data directory is locked, the addresses are reserved      (one clear line if not)
        └ runtime ── Node.start
             health page opened ── cluster bootstrapped or joined ── broker registered
                   ── logs opened ── unfenced ── listeners opened ── ready
             stop: leaderships handed over ── no new clients ── pending responses leave
                   ── listeners closed ── logs synced and closed ── metadata closed ── clean marker

    node       one node: its services and its listeners
    services   the services of a node, without listeners
    options    what a node is built from, and its reserved addresses
    run        runs one node in this process
    metrics    the node's own metrics, and the metrics page

Only this package reads a `Config`: it becomes `NodeOptions` and, for what Kafka's tools ask
about, broker settings under Kafka's names. `NodeServices` is a node without listeners: every service
on a disk and a runtime. The simulator runs a whole `Node`, with listeners on its simulated network.

A node whose only role is controller registers no broker and has no listener for clients; one whose
only role is broker never votes.

`penstock.testing` runs nodes on threads of a process that is not theirs; `run_node` takes the loop to run on.

Left out: changing roles while a node runs.
"""

from penstock.node.node import Node, NodeAddresses, build
from penstock.node.options import ListenerOptions, NodeOptions, options_from, static_settings
from penstock.node.run import run_node
from penstock.node.services import NodeServices, NodeStorage

__all__ = [
    "run_node",
    "build",
    "Node",
    "NodeAddresses",
    "NodeOptions",
    "ListenerOptions",
    "options_from",
    "static_settings",
    "NodeServices",
    "NodeStorage",
]
