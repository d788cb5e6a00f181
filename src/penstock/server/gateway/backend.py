"""What the servers of a gateway share, and what each caller of a secured one has of its own."""

import asyncio
import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.client.cluster import (
    ClusterClient,
    GroupMembership,
    LogReader,
    Publisher,
    QueueClient,
    QuotaExceeded,
)
from penstock.client.cluster.security import ClusterSecurity, ClusterTls, StatedCaller
from penstock.server.gateway.members import GroupMembers
from penstock.server.gateway.memory import MemoryBudget
from penstock.server.gateway.options import GatewayOptions
from penstock.server.gateway.pages import NodePages

if TYPE_CHECKING:
    from penstock.server.gateway.callers import Callers


class GatewayBackend:
    """The way to the cluster and to the node itself; made inside the event loop that uses it.

    Without `callers` everyone is served, as one and the same. With them, each caller has a backend of its own
    (`acting_for`), and this one only knows what they share.
    """

    callers: "Callers | None"

    def __init__(
        self,
        options: GatewayOptions,
        token: str = "",
        tls: ClusterTls | None = None,
        shared: "GatewayBackend | None" = None,
        caller: StatedCaller | None = None,
        on_connect: Callable[[int], None] | None = None,
    ) -> None:
        """`on_connect` hears from which port a connection to a broker will come."""
        self.options = options
        self.limits = options.rest
        self._tls = tls
        self._on_connect = on_connect
        self._loop = asyncio.get_running_loop()
        self.memory: MemoryBudget = (
            MemoryBudget(options.rest.in_flight_bytes_max) if shared is None else shared.memory
        )
        # Set when the gateway is asked to end: requests that wait for something return what they have.
        self.stopping: asyncio.Event = asyncio.Event() if shared is None else shared.stopping
        self.pages = NodePages(*options.pages)
        if caller is not None:
            self.pages = self.pages.acting_for(caller)
        self._throttled_until = 0.0
        security = ClusterSecurity(tls, caller, self._throttle, on_connect=on_connect)
        self.cluster = ClusterClient([options.bootstrap], client_id="penstock-gateway", security=security)
        self.publisher = Publisher(self.cluster)
        self.reader = LogReader(self.cluster)
        self.queues = QueueClient(self.cluster)
        self.membership = GroupMembership(self.cluster)
        self.members = GroupMembers(self.cluster, self.membership)
        self.callers = None
        if options.is_secured and shared is None:
            from penstock.server.gateway.callers import Callers

            self.callers = Callers(self, token)

    def acting_for(self, caller: StatedCaller) -> "GatewayBackend":
        """The same for one caller: with connections that log in as it."""
        return GatewayBackend(
            self.options, tls=self._tls, shared=self, caller=caller, on_connect=self._on_connect
        )

    def now(self) -> float:
        return self._loop.time()

    def _throttle(self, wait_ms: int) -> None:
        self._throttled_until = max(self._throttled_until, self._loop.time() + wait_ms / 1_000)

    def check_quota(self) -> None:
        """Raise QuotaExceeded while brokers want the caller to wait (KIP-219)."""
        left = self._throttled_until - self._loop.time()
        if left > 0:
            raise QuotaExceeded(max(1, math.ceil(left)))

    @property
    def is_throttled(self) -> bool:
        return self._throttled_until > self._loop.time()

    async def close_connections(self) -> None:
        """The caller is gone."""
        await self.publisher.close()
        await self.cluster.close()

    async def close(self) -> None:
        """Disconnect; set `stopping` before, and give requests that are under way the time to end."""
        self.stopping.set()
        if self.callers is not None:
            await self.callers.close()
        await self.close_connections()
