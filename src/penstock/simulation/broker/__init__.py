"""A whole node in the simulator: the production services, producers that retry, a consumer.

The node is `app`'s own composition without its sockets: metadata, partitions, producing and
fetching on a disk that loses power. Producers are idempotent and remember what they sent
across the node's lives, as a client on another machine would; what was not acknowledged is
sent again with the same sequence. A consumer reads along.

Left out: the Kafka protocol's bytes (those are tested on real sockets), groups, and more
than one node.
"""

from penstock.simulation.broker.world import BrokerOptions, run_broker

__all__ = ["run_broker", "BrokerOptions"]
