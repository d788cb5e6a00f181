"""Producers and a consumer that outlive the node they talk to."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from penstock.core.model import ProducerId, Refused, Why
from penstock.gateways.kafka.backend import Backend
from penstock.services.partitions import Partition
from penstock.services.records import Fetched, FetchLimits, Placed, Wanted
from penstock.simulation.checkers.log import LogHistory
from penstock.simulation.values import batch_of, values_of

IN_FLIGHT_MAX = 5
FETCH = FetchLimits(min_bytes=1, max_bytes=1 << 16, max_wait_ms=500)

# What an honest client may be told: it looks for the leader and tries again.
RETRIABLE = (Why.NOT_LEADER, Why.STORAGE_FAILED)


@dataclass(slots=True)
class Pending:
    """A batch that was sent and not acknowledged yet."""

    values: list[bytes]
    sequence: int
    sent: bool = False


@dataclass(slots=True)
class ProducerMemory:
    """What a producer knows, whatever becomes of the broker."""

    name: str
    batches: int
    producer_id: ProducerId | None = None
    made: int = 0
    sequence: int = 0
    pending: deque[Pending] = field(default_factory=deque)

    @property
    def finished(self) -> bool:
        return self.made == self.batches and not self.pending


class ProducerLife:
    """One connection of a producer to one life of the node."""

    def __init__(
        self,
        memory: ProducerMemory,
        backend: Backend,
        partition: Partition,
        history: LogHistory,
        failed: Callable[[str], None],
    ) -> None:
        self._memory = memory
        self._backend = backend
        self._partition = partition
        self._history = history
        self._failed = failed
        self._over = False
        for batch in memory.pending:
            batch.sent = False

    def start(self) -> None:
        if self._memory.producer_id is not None:
            self.go_on()
        else:
            self._backend.producer_ids.next(self._got_id)

    def _got_id(self, given: ProducerId | Refused) -> None:
        if not isinstance(given, Refused):
            self._memory.producer_id = given
            self.go_on()

    def go_on(self) -> None:
        """One more batch, as long as no more are in flight than a Kafka producer may have."""
        memory = self._memory
        if memory.producer_id is None:
            return
        if not self._over and len(memory.pending) < IN_FLIGHT_MAX and memory.made < memory.batches:
            memory.pending.append(self._next_batch())
        for batch in list(memory.pending):
            if not batch.sent and not self._over:
                self._send(batch)

    def _next_batch(self) -> Pending:
        memory = self._memory
        count = 1 + memory.made % 3
        values = [b"%s/%d/%d" % (memory.name.encode(), memory.made, i) for i in range(count)]
        self._history.sent.setdefault(memory.name, []).extend(values)
        batch = Pending(values, memory.sequence)
        memory.made += 1
        memory.sequence += count
        return batch

    def _send(self, batch: Pending) -> None:
        batch.sent = True
        assert self._memory.producer_id is not None
        data = batch_of(batch.values, self._memory.producer_id, batch.sequence)
        placed = self._backend.producing.append(self._partition, memoryview(bytearray(data)))
        if isinstance(placed, Refused):
            self._refused(placed)
            return
        assert isinstance(placed, Placed), "only large batches take longer"

        def acknowledged(error: Refused | None) -> None:
            if error is None:
                self._acknowledged(batch, placed)

        if self._partition.when_acknowledged(placed.end, acknowledged):
            self._acknowledged(batch, placed)

    def _refused(self, refused: Refused) -> None:
        self._over = True
        if refused.why not in RETRIABLE:
            self._failed(f"refused: {self._memory.name} was told {refused.why.value}")

    def _acknowledged(self, batch: Pending, placed: Placed) -> None:
        for index, value in enumerate(batch.values):
            self._history.acknowledged.setdefault(value, placed.first_offset + index)
        self._memory.pending = deque(left for left in self._memory.pending if left is not batch)


class Consumer:
    """Reads along from where it is, in one life of the node."""

    def __init__(self, backend: Backend, partition: Partition, history: LogHistory, start: int) -> None:
        self._backend = backend
        self.partition = partition
        self._history = history
        self.position = start

    def poll(self) -> None:
        self._backend.fetching.fetch([Wanted(self.partition, self.position, 1 << 16)], FETCH, self._got)

    def _got(self, found: list[Fetched]) -> None:
        for offset, value in values_in(found[0]):
            if offset >= self.position:
                self._history.saw(offset, value)
                self.position = offset + 1


def values_in(found: Fetched) -> list[tuple[int, bytes]]:
    """The records of one answer."""
    return [] if found.records is None else values_of(found.records.to_bytes())
