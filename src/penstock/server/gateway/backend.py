"""What the servers of a gateway share."""

import asyncio

from penstock.client.cluster import ClusterClient, GroupMembership, LogReader, Publisher, QueueClient
from penstock.server.gateway.members import GroupMembers
from penstock.server.gateway.memory import MemoryBudget
from penstock.server.gateway.options import GatewayOptions
from penstock.server.gateway.pages import NodePages


class GatewayBackend:
    """The way to the cluster and to the node itself; made inside the event loop that uses it."""

    def __init__(self, options: GatewayOptions) -> None:
        self.options = options
        self.limits = options.rest
        self.memory = MemoryBudget(options.rest.in_flight_bytes_max)
        self.pages = NodePages(*options.pages)
        self.cluster = ClusterClient([options.bootstrap], client_id="penstock-gateway")
        self.publisher = Publisher(self.cluster)
        self.reader = LogReader(self.cluster)
        self.queues = QueueClient(self.cluster)
        self.membership = GroupMembership(self.cluster)
        self.members = GroupMembers(self.cluster, self.membership)
        # Set when the gateway is asked to end: requests that wait for something return what they have.
        self.stopping = asyncio.Event()

    async def close(self) -> None:
        """Disconnect; set `stopping` before, and give requests that are under way the time to end."""
        self.stopping.set()
        await self.publisher.close()
        await self.cluster.close()
