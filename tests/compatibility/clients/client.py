"""What a test asks of a Kafka client, whatever library or command is behind it."""

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

# For one step of a client, on a machine that others use too.
PATIENCE_SECONDS = 60.0
POLL_SECONDS = 0.2


class Sent(NamedTuple):
    """A record on its way out."""

    value: str
    key: str
    partition: int
    timestamp_ms: int | None = None


class Received(NamedTuple):
    """A record that came back."""

    partition: int
    offset: int
    timestamp_ms: int
    key: str
    value: str


class Member(Protocol):
    """One consumer of a group, subscribed to one topic, reading from its beginning; commits when asked to."""

    def poll(self) -> Iterable[Received]: ...
    def assigned(self) -> set[int]: ...
    def commit(self) -> None: ...


class Client(Protocol):
    """The features every client is asked for."""

    def create_topic(self, topic: str, partitions: int) -> None: ...
    def delete_topic(self, topic: str) -> None: ...
    def topics(self) -> set[str]: ...
    def produce(self, topic: str, records: Sequence[Sent], codec: str = "none") -> None:
        """Return when all are acknowledged."""

    def join(self, group: str, topic: str) -> AbstractContextManager[Member]: ...
    def read_since(self, topic: str, partition: int, timestamp_ms: int, count: int) -> list[Received]:
        """Seek by time, then read so many records."""


def wait_until(holds: Callable[[], bool], step: Callable[[], object], what: str) -> None:
    """Repeat a step, which waits by itself, until something holds."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < end, f"waited {PATIENCE_SECONDS:.0f} s for {what}"
        step()


def polling(*members: tuple[Member, list[Received]]) -> Callable[[], None]:
    """A step that polls each member in turn and keeps what it got."""

    def step() -> None:
        for member, received in members:
            received.extend(member.poll())

    return step


def collect(member: Member, count: int) -> list[Received]:
    """Poll until so many records are there."""
    received: list[Received] = []
    wait_until(lambda: len(received) >= count, polling((member, received)), f"{count} records")
    return received
