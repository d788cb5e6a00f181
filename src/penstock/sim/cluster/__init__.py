"""Whole clusters in the simulator: every service of production on every node, and their clients.

    ClusterWorld ── ClusterNode (N)             a Node on a crashable disk, skewed clocks, simulated TCP
                 ├── IdempotentProducer          five in flight, acks=all: loses nothing
                 ├── AtMostOnceProducer          acks=1, never retries: may lose, must not lie
                 ├── AssignedConsumer            assigns itself, polls, goes back to the start
                 ├── GroupMember                 joins, reads, commits, crashes
                 ├── TransactionalProducer       commits, aborts, dies, and leaves zombies behind
                 ├── TransformingMember          consumes, transforms and produces in transactions
                 ├── SimulatedSink               commits what its tasks wrote in batches; both die
                 ├── IsolatedConsumer            reads what is committed, or everything
                 ├── RackConsumer                reads what is committed from followers
                 ├── JobProducer                 writes what queues have to do
                 ├── QueueConsumer               leases, finishes, releases, renews, forgets
                 ├── QueueTransactor             acknowledges in transactions, with an output
                 ├── RecordDeleter               deletes from the front of partitions
                 ├── PartitionMover              moves partitions to other brokers
                 ├── LeaderRotator               takes leader after leader out of a partition
                 ├── VoterAdmin                  takes voters out of the quorum and puts them back
                 ├── KeyRotator                  rotates master keys, and takes old ones away
                 ├── TopicAdmin                  creates, grows, configures and deletes topics
                 └── Journal                     what all of them saw, for the checkers

    options    how large the cluster is, and how much its clients do
    node       one node, as the checkers see it
    probe      what all nodes have on disk whenever one of them promises something
    world      nodes and clients of one run
    clients    the clients
    journal    the checkers of a run
    coverage   what a run came across: transitions, and events of nodes
    run        one run from its start to its result

Clients live outside of the nodes, on hosts of their own: they speak the Kafka protocol to the nodes'
own listeners, find leaders and coordinators by asking, lose requests and responses when a node dies
or the network is cut, and time out. A run ends with everything repaired; the cluster must settle
within bounded time, and then every partition is read to its end, every replica compared, every
acknowledgement checked.

Left out: share consumers, the pause of queues and the redrive of dead letters; nodes that join or leave for
good; the HTTP pages.
"""

from penstock.sim.cluster.node import ClusterNode, MakeProcess, SimulatedBroker
from penstock.sim.cluster.options import SimulatedClusterOptions
from penstock.sim.cluster.run import draw_plan, options_for, run_cluster
from penstock.sim.cluster.world import ClusterWorld

__all__ = [
    "run_cluster",
    "options_for",
    "SimulatedClusterOptions",
    "ClusterWorld",
    "ClusterNode",
    "SimulatedBroker",
    "MakeProcess",
    "draw_plan",
]
