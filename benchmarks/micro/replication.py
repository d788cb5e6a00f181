"""What one round of replication costs on each side: CPU time, on a real disk, without a network.

A round is one batch at the leader, the answer to the fetch that waits for it, the follower's append
and next fetch, and its progress when the batch is synced. Frames go from one side to the other
as function calls, and syncs end at once: what is left is what the two processes would compute.
"""

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from uuid import UUID

from penstock.broker.partitions import LogStore, ReplicaManager
from penstock.broker.replication.fetch_server import ReplicaFetchServer
from penstock.broker.replication.fetcher import ReplicaFetcher
from penstock.broker.replication.options import ReplicationMetrics, ReplicationOptions
from penstock.broker.replication.protocol import (
    FollowerProgress,
    ReplicaFetch,
    ReplicaFetchResponse,
    decode,
    key_of,
)
from penstock.core.metadata import (
    SUPPORTED_FEATURES,
    BootstrapCluster,
    CreateTopic,
    MetadataImage,
    MetadataMachine,
    RegisterBroker,
)
from penstock.core.metadata.commands import Command, ReplicaAssignment
from penstock.core.model import BrokerEpoch, Instant, NodeId, PartitionIndex, Timestamp, TopicId
from penstock.core.records import Record, check_batches, write_batch
from penstock.runtime import Buffer, Callback, ExecutorKind, Runtime, SyncTarget, Timer
from penstock.storage.commit import GroupCommit
from penstock.storage.data_directory import DataDirectory
from penstock.storage.disk import PosixDisk

LEADER, FOLLOWER = NodeId(1), NodeId(2)
TOPIC = TopicId(UUID(int=7))
ROUNDS = 4_000
WARM_UP = 400


class NoTimer:
    """Nothing in here takes long enough."""

    def cancel(self) -> None:
        """It never fires."""


class Turns:
    """A runtime whose turns the bench takes: what was asked for with `soon`, and syncs, which end at once."""

    def __init__(self) -> None:
        self.soon_calls: list[Callback] = []

    def now(self) -> Instant:
        return Instant(time.monotonic_ns())

    def wall(self) -> Timestamp:
        return Timestamp(1_700_000_000_000)

    def at(self, _deadline: Instant, _fire: Callback) -> Timer:
        return NoTimer()

    def soon(self, fire: Callback) -> Timer:
        self.soon_calls.append(fire)
        return NoTimer()

    def when_idle(self, fire: Callback) -> None:
        self.soon_calls.append(fire)

    def sync(self, _files: Sequence[SyncTarget], done: Callable[[OSError | None], None]) -> None:
        self.soon_calls.append(lambda: done(None))

    def spawn(
        self, work: Callable[[], object], done: Callable[..., None], _failed: object, _lane: ExecutorKind
    ) -> object:
        done(work())
        return NoTimer()

    def bytes(self, count: int) -> bytes:
        return os.urandom(count)

    def run(self) -> None:
        while self.soon_calls:
            calls, self.soon_calls = self.soon_calls, []
            for call in calls:
                call()


class Side:
    """One node: its partitions on a disk of their own, and how long it has computed."""

    def __init__(self, node: NodeId, root: str, image: MetadataImage) -> None:
        self.turns = turns = Turns()
        self.runtime = Runtime(turns, turns, turns, turns, turns, turns)  # type: ignore[arg-type]
        disk = PosixDisk(root)
        commit = GroupCommit(turns, turns.now)
        self.partitions = ReplicaManager(node, self.runtime, LogStore(disk, disk, commit))
        self.partitions.open_all(image, DataDirectory.open(disk, UUID(int=node)))
        turns.run()
        self.spent_ns = 0

    def timed(self, act: Callable[[], object]) -> None:
        begin = time.process_time_ns()
        act()
        self.turns.run()
        self.spent_ns += time.process_time_ns() - begin


class Pair:
    """A leader and its follower, with one or many partitions."""

    def __init__(self, root: str, partitions: int) -> None:
        image = _image(partitions)
        self.leader = Side(LEADER, os.path.join(root, "1"), image)
        self.follower = Side(FOLLOWER, os.path.join(root, "2"), image)
        options, metrics = ReplicationOptions(), ReplicationMetrics()
        self.to_leader: list[bytes] = []
        self.to_follower: list[bytes] = []
        self.serving = ReplicaFetchServer(
            self.leader.runtime, self.leader.partitions, options, metrics, lambda _: None
        )
        self.fetcher = ReplicaFetcher(
            self.follower.runtime, LEADER, BrokerEpoch(2), self._send, lambda: False, options, metrics
        )
        self.node_id, self.directory_id = FOLLOWER, UUID(int=FOLLOWER)
        followed = {key_of(TOPIC, role.name.partition): role for role in self.follower.partitions.followed()}
        assert len(followed) == partitions
        self.fetcher.set_partitions(followed)
        self.exchange()

    def _send(self, frame: Buffer) -> bool:
        self.to_leader.append(bytes(frame))
        return True

    def send(self, *parts: Buffer) -> bool:
        """The follower as the leader sees it."""
        self.to_follower.append(b"".join(parts))
        return True

    def exchange(self) -> None:
        """Until both have nothing more to say."""
        while self.to_leader or self.to_follower:
            frames, self.to_leader = self.to_leader, []
            for frame in frames:
                self.leader.timed(lambda frame=frame: self._serve(frame))  # type: ignore[misc]
            frames, self.to_follower = self.to_follower, []
            for frame in frames:
                self.follower.timed(lambda frame=frame: self._take(frame))  # type: ignore[misc]

    def _serve(self, frame: bytes) -> None:
        message = decode(memoryview(frame))
        if isinstance(message, ReplicaFetch):
            self.serving.fetch(self, message)
        elif isinstance(message, FollowerProgress):
            self.serving.progress(self, message)

    def _take(self, frame: bytes) -> None:
        message = decode(memoryview(frame))
        assert isinstance(message, ReplicaFetchResponse)
        self.fetcher.answered(message)

    def round(self, index: int, batch: bytearray) -> None:
        partition = self.leader.partitions.find("t", index)
        assert partition is not None
        partition.append(batch, check_batches(batch), Timestamp(0))
        # The leader's own append and sync are Produce's; its turn after them is replication's.
        self.leader.timed(lambda: None)
        self.exchange()


def run() -> dict[str, float]:
    """Microseconds per round, for one partition among few and many."""
    figures: dict[str, float] = {}
    for partitions in (1, 500):
        for size in (1_000, 100_000):
            leader_us, follower_us = _measure(partitions, size)
            what = f"{size // 1000} KB batch, {partitions} partition{'s' * (partitions > 1)}"
            figures[f"leader, {what} (us)"] = leader_us
            figures[f"follower, {what} (us)"] = follower_us
    return figures


def _measure(partitions: int, size: int) -> tuple[float, float]:
    root = tempfile.mkdtemp(prefix="penstock-bench-")
    try:
        pair = Pair(root, partitions)
        batch = write_batch([Record(0, 1_700_000_000_000, None, b"v" * size, ())])
        rounds = ROUNDS if size < 10_000 else ROUNDS // 4
        for number in range(WARM_UP + rounds):
            if number == WARM_UP:
                pair.leader.spent_ns = pair.follower.spent_ns = 0
            pair.round(number % partitions, batch)
        first = pair.leader.partitions.find("t", 0)
        assert first is not None
        assert first.high_watermark == first.log.end, "a round was not finished"
        return pair.leader.spent_ns / rounds / 1000, pair.follower.spent_ns / rounds / 1000
    finally:
        shutil.rmtree(root)


def _image(partitions: int) -> MetadataImage:
    machine = MetadataMachine()
    _perform(machine, BootstrapCluster("bench"))
    for node in (LEADER, FOLLOWER):
        _perform(
            machine,
            RegisterBroker("bench", node, UUID(int=node), features=SUPPORTED_FEATURES, fenced=False),
        )
    places = tuple(
        ReplicaAssignment(PartitionIndex(index), (LEADER, FOLLOWER)) for index in range(partitions)
    )
    _perform(machine, CreateTopic("t", TOPIC, assignments=places))
    return machine.image


def _perform(machine: MetadataMachine, command: Command) -> None:
    machine.replay(machine.decide(command, Instant(0)).facts)
