"""Nodes on one real loop, with real sockets, for tests."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from time import monotonic  # noqa: TID251 - a bound on how long a test may wait, nothing is measured
from uuid import UUID

import pytest
import uvloop

from penstock.core.model import NodeId
from penstock.runtime import CloseReason, Link, NodeIdentity, Runtime
from penstock.runtime.loop import RuntimeOptions, Supervisor, open_runtime

CLUSTER = UUID(int=7)
PATIENCE_S = 60


@dataclass
class Recorder:
    """A link handler that remembers its calls."""

    links: list[Link] = field(default_factory=list)
    peers: list[NodeIdentity] = field(default_factory=list)
    frames: list[bytes] = field(default_factory=list)
    endings: list[CloseReason] = field(default_factory=list)
    drains: int = 0

    def opened(self, link: Link, peer: NodeIdentity) -> None:
        self.links.append(link)
        self.peers.append(peer)

    def received(self, link: Link, frame: bytes) -> None:
        self.frames.append(frame)

    def drained(self, link: Link) -> None:
        self.drains += 1

    def closed(self, link: Link, ending: CloseReason) -> None:
        self.endings.append(ending)


@dataclass
class Bench:
    """One loop, and the nodes a test puts on it."""

    loop: asyncio.AbstractEventLoop
    supervisors: list[Supervisor] = field(default_factory=list)

    def node(self, node_id: int, options: RuntimeOptions | None = None, cluster: UUID = CLUSTER) -> Runtime:
        supervisor = Supervisor(self.loop, over=lambda: None)
        self.supervisors.append(supervisor)
        identity = NodeIdentity(cluster, NodeId(node_id), UUID(int=1000 + node_id))
        return open_runtime(self.loop, supervisor, identity, options or RuntimeOptions())

    def until(self, condition: Callable[[], bool]) -> None:
        """Let the loop run until the condition holds; a test that waits for ever fails instead."""
        deadline = monotonic() + PATIENCE_S
        while not condition():
            assert monotonic() < deadline, "waited in vain"
            self.loop.call_later(0.001, self.loop.stop)
            self.loop.run_forever()

    def close(self) -> None:
        for supervisor in reversed(self.supervisors):
            supervisor.close()
            assert supervisor.failure is None, supervisor.failure
        self.loop.close()


@pytest.fixture
def bench() -> Iterator[Bench]:
    loop = uvloop.new_event_loop()
    made = Bench(loop)
    loop.set_exception_handler(lambda _loop, context: made.supervisors[0].fail(context["exception"]))
    yield made
    made.close()


@pytest.fixture
def new_recorder() -> Callable[[], Recorder]:
    return Recorder
