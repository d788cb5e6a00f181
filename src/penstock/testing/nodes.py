"""What a node on a thread and one in a process have in common."""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from penstock.core.model import PenstockError

START_SECONDS = 60
STOP_SECONDS = 20


class NodeNotReady(PenstockError):
    """A node of a test did not become ready."""


class NodeFailed(PenstockError):
    """A node of a test ended by itself, or did not end when it was told to."""


class NodeOnThread(PenstockError):
    """A node shares the process of the test, and cannot be killed without it."""


class NodeEndpoints(NamedTuple):
    """Where a node of a test listens, as `host:port`."""

    kafka: str
    http: str


class NodeHost(Protocol):
    """Where one node of a test runs: a thread or a process."""

    def launch(self, settings: Mapping[str, str]) -> None:
        """Start it; nodes that need one another are launched before any is waited for."""

    def await_ready(self) -> NodeEndpoints:
        """Wait until it serves clients; raises what kept it from that."""

    def stop(self) -> None:
        """Stop it in order and wait for its end; raises NodeFailed if it had failed before."""

    def kill(self) -> None:
        """End it at once, as kill -9 does."""

    def discard(self) -> None:
        """Begin to end it in the quickest way: nobody needs its data."""

    def await_end(self) -> None:
        """Wait until nothing is left of it; raises NodeFailed if it had failed before."""
