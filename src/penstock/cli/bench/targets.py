"""Which broker is measured."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from penstock.cli.bench.figures import MEGABYTE
from penstock.cli.bench.usage import Usage, usage_of
from penstock.cli.child import throw_away_broker
from penstock.client import Endpoint, Topics
from penstock.core.model import PenstockError
from penstock.runtime.loop import MachineEntropy


class BadPeer(PenstockError):
    """A peer that cannot be made sense of."""


@dataclass(frozen=True, slots=True)
class Target:
    """A broker to measure; with a process id, what it uses can be told."""

    name: str
    endpoint: Endpoint
    pid: int | None = None
    start_ms: float | None = None
    idle_rss_mb: float | None = None
    replication: int = 1

    def usage(self) -> Usage | None:
        return None if self.pid is None else usage_of(self.pid)

    @contextmanager
    def topic(self, partitions: int = 1, configs: dict[str, str] | None = None) -> Iterator[str]:
        """A topic for one measurement, deleted after it."""
        name = f"penstock-bench-{MachineEntropy().bytes(6).hex()}"
        topics = Topics(self.endpoint)
        topics.create(name, partitions, self.replication, configs or {})
        try:
            yield name
        finally:
            Topics(self.endpoint).delete(name)

    def end_offsets(self, topic: str) -> int:
        """How many records a topic has taken, over all partitions."""
        return sum(one.end_offset or 0 for one in Topics(self.endpoint).describe(topic).partitions)


@contextmanager
def target(
    bootstrap: str | None, pid: int | None, settings: Sequence[str], directory: str | None
) -> Iterator[Target]:
    """The broker that was named, or else one of our own."""
    if bootstrap is not None:
        yield Target("broker", Endpoint(bootstrap), pid)
        return
    with throw_away_broker(settings, directory) as child:
        idle_rss_mb = usage_of(child.pid).rss_bytes / MEGABYTE
        yield Target("penstock", Endpoint(child.bootstrap), child.pid, child.start_ns / 1e6, idle_rss_mb)


def parse_peer(text: str) -> Target:
    """Read `host:port`, `name=host:port` or `name=host:port@pid`."""
    name, equals, rest = text.partition("=")
    address, at, pid = (rest if equals else text).partition("@")
    if not address or (at and not pid.isdigit()):
        raise BadPeer(f"--peer {text}: expected name=host:port or name=host:port@pid")
    if at and not os.path.exists(f"/proc/{pid}"):
        raise BadPeer(f"--peer {text}: there is no process {pid}")
    return Target(name if equals else address, Endpoint(address), int(pid) if at else None)
