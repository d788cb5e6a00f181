"""The services of one node in virtual time, and topics to write to and read from."""

from uuid import UUID

import pytest

from penstock.broker.fetch import FetchedPartition, FetchLimits, FetchPartition
from penstock.broker.partitions import LeaderPartition
from penstock.broker.produce import AppendResult, PendingAppend, ProduceMetrics
from penstock.broker.topics import NewTopic
from penstock.core.metadata import CreatedTopic
from penstock.core.model import MILLISECOND, SECOND, ApiError, Instant, NodeId, Offset
from penstock.core.records import Record, write_batch
from penstock.node import NodeOptions, NodeServices, NodeStorage
from penstock.runtime import Callback, Runtime, Service
from penstock.server.kafka.backend import Backend
from penstock.sim import World
from penstock.storage.data_directory import DataDirectory
from penstock.storage.disk import Disk
from penstock.storage.sealing import KeyVault
from tests.support.key_vaults import vault_of


class Bench:
    """One node without listeners."""

    def __init__(self, vault: KeyVault | None = None) -> None:
        self.world = World(11)
        self.vault = vault
        self.backend: Backend
        self.runtime: Runtime
        self.node = self.world.add("node", self._program)
        self.node.start()
        self.run(5 * SECOND)

    def _program(self, runtime: Runtime, disk: Disk) -> Service:
        self.runtime = runtime
        storage = NodeStorage(disk, disk, DataDirectory.open(disk, UUID(int=4)), self.vault)
        static = {} if self.vault is None else {"log.encryption.at.rest": "true"}
        self._backstage = NodeServices(
            runtime, storage, NodeOptions("data", NodeId(1), (), static=static), ()
        )
        self._backstage.start(self._ready)
        return self

    def _ready(self, backend: Backend) -> None:
        self.backend = backend

    def stop(self, done: Callback) -> None:
        self._backstage.close()
        done()

    def run(self, duration_ns: int = 100 * MILLISECOND) -> None:
        self.world.run(duration_ns)
        assert self.world.failures == []

    @property
    def produce_metrics(self) -> ProduceMetrics:
        return self._backstage.produce_metrics

    @property
    def now(self) -> Instant:
        return self.runtime.clock.now()

    def end_lease(self, in_ms: int = 0) -> None:
        """The broker's lease ends, now or soon; no heartbeat renews it."""
        self._backstage.member._heartbeat.end()
        self.backend.partitions.lease.until = Instant(self.now + in_ms * MILLISECOND)

    @property
    def wall_ms(self) -> int:
        return self.runtime.clock.wall()

    def topic(self, name: str = "orders", **configs: str) -> LeaderPartition:
        """The only partition of a new topic; a config's dots are underscores here."""
        outcome: list[CreatedTopic | ApiError] = []
        values = tuple((key.replace("_", "."), value) for key, value in configs.items())
        self.backend.topics.create([NewTopic(name, partitions=1, configs=values)], outcome.extend)
        self.run(5 * SECOND)
        assert isinstance(outcome[0], CreatedTopic), outcome
        partition = self.backend.partitions.find(name, 0)
        assert partition is not None
        return partition

    def batch(self, *values: bytes, **fields: int) -> memoryview:
        records = [Record(0, self.wall_ms, b"key", value) for value in values or (b"value",)]
        return memoryview(write_batch(records, **fields))  # type: ignore[arg-type]

    def append(self, partition: LeaderPartition, *values: bytes, **fields: int) -> AppendResult | ApiError:
        outcome = self.backend.produce_service.append(partition, self.batch(*values, **fields))
        assert not isinstance(outcome, PendingAppend)
        return outcome

    def acknowledgement(
        self, partition: LeaderPartition, placed: AppendResult | ApiError
    ) -> list[ApiError | None]:
        """Fills when the batch is acknowledged or given up."""
        assert isinstance(placed, AppendResult)
        heard: list[ApiError | None] = []
        if partition.when_acknowledged(placed.end, heard.append):
            heard.append(None)
        return heard

    def written(self, partition: LeaderPartition, *values: bytes) -> AppendResult:
        """Append and wait for the acknowledgement."""
        placed = self.append(partition, *values)
        heard = self.acknowledgement(partition, placed)
        self.run()
        assert heard == [None]
        assert isinstance(placed, AppendResult)
        return placed

    def deleted(
        self, *wanted: tuple[LeaderPartition, int], timeout_ms: int = 1_000
    ) -> list[Offset | ApiError]:
        """Delete records below these offsets; returns where the logs start then."""
        outcomes: list[Offset | ApiError] = []
        self.backend.record_deletion.delete(wanted, timeout_ms, outcomes.extend)
        self.run(2 * SECOND)
        return outcomes

    def fetch(self, limits: FetchLimits, *wanted: FetchPartition) -> list[list[FetchedPartition]]:
        """Fills with the response when there is one."""
        answers: list[list[FetchedPartition]] = []
        self.backend.fetch_service.fetch(wanted, limits, answers.append)
        return answers


@pytest.fixture(params=[False, True], ids=["plain", "encrypted"])
def bench(request: pytest.FixtureRequest) -> Bench:
    """What is true of logs is true of encrypted ones."""
    return Bench(vault_of() if request.param else None)
