"""Markers: the end of a transaction, written into each partition that took part.

    coordinator ── WriteTxnMarkers, or a peer's request ──► MarkerWriter ── control batch ──► log
                                                              │ committed: the last stable offset moves
                                                              └ `__consumer_offsets`: the group coordinator
                                                                appends it, and applies or drops the offsets;
                                                                `__queue_state` and `__delayed`: the same

A marker is answered once it is committed: on all in-sync replicas, and at least the minimum of them. A
coordinator that does not hear of it sends it again, which is harmless: a marker without an open transaction
changes the producer's epoch and nothing else.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple, Protocol, TypeAlias

from penstock.broker.lease import NO_LEASE, BrokerLease
from penstock.broker.partitions import LeaderPartition, PartitionStopped
from penstock.broker.transactions.verification import TransactionVerification
from penstock.core.metadata import DELAYED_TOPIC, OFFSETS_TOPIC, QUEUES_TOPIC
from penstock.core.model import ApiError, ErrorKind, Offset, StorageError, Timestamp, TopicPartition
from penstock.core.records import ControlRecord, ControlType, read_header, write_control_batch
from penstock.core.replica import DuplicateMarker
from penstock.runtime import Runtime

# How long a marker waits for the other replicas before its coordinator is told to send it again.
COMMIT_TIMEOUT_MS = 2_000
# Markers that are appended in one turn of the loop.
PORTION = 100
NOT_LED = ApiError(ErrorKind.NOT_LEADER)
TOO_FEW = ApiError(ErrorKind.NOT_ENOUGH_REPLICAS)


class TransactionMarker(NamedTuple):
    """How one producer's transaction ended, and where that is to be written."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool
    transaction_version: int
    partitions: tuple[TopicPartition, ...]


MarkerResults: TypeAlias = Sequence[Mapping[TopicPartition, ApiError | None]]


class CoordinatorMarkers(Protocol):
    """Coordinators of this node whose state open transactions decide on: groups' offsets, or queues."""

    def end_transaction(
        self, partition: LeaderPartition, append: Callable[[], Offset | ApiError], marker: ControlRecord
    ) -> Offset | ApiError:
        """Have the partition's coordinator call `append`, and apply or drop what the producer did."""


class LeaderLookup(Protocol):
    """The partitions that this node leads."""

    @property
    def lease(self) -> BrokerLease: ...

    def find(self, topic: str, index: int) -> LeaderPartition | None: ...


class _Request:
    """The markers of one request, until the last of them is committed or failed."""

    __slots__ = ("done", "results", "waiting", "work")

    def __init__(self, markers: Sequence[TransactionMarker], done: Callable[[MarkerResults], None]) -> None:
        self.done = done
        self.results: list[dict[TopicPartition, ApiError | None]] = [{} for _ in markers]
        self.work: Iterator[tuple[int, TransactionMarker, TopicPartition]] = (
            (at, marker, partition)
            for at, marker in enumerate(markers)
            for partition in dict.fromkeys(marker.partitions)
        )
        # One for the request itself, so that it is not done before everything was appended.
        self.waiting = 1

    def settle(self, at: int, partition: TopicPartition, error: ApiError | None) -> None:
        self.results[at][partition] = error
        self.end()

    def end(self) -> None:
        self.waiting -= 1
        if not self.waiting:
            self.done(self.results)


class MarkerWriter:
    """Writes markers into the partitions that this node leads."""

    def __init__(
        self,
        partitions: LeaderLookup,
        runtime: Runtime,
        verification: TransactionVerification,
        offsets: CoordinatorMarkers,
        queues: CoordinatorMarkers | None = None,
        delays: CoordinatorMarkers | None = None,
    ) -> None:
        self._partitions = partitions
        self._clock = runtime.clock
        self._timers = runtime.timers
        self._verification = verification
        self._coordinators = {OFFSETS_TOPIC: offsets}
        if queues is not None:
            self._coordinators[QUEUES_TOPIC] = queues
        if delays is not None:
            self._coordinators[DELAYED_TOPIC] = delays

    def write(self, markers: Sequence[TransactionMarker], done: Callable[[MarkerResults], None]) -> None:
        """Append the markers; `done` gets an error or None per marker and partition, perhaps at once."""
        self._go_on(_Request(markers, done))

    def _go_on(self, request: _Request) -> None:
        for _ in range(PORTION):
            work = next(request.work, None)
            if work is None:
                request.end()
                return
            self._write(request, *work)
        self._timers.soon(partial(self._go_on, request))

    def _write(self, request: _Request, at: int, marker: TransactionMarker, name: TopicPartition) -> None:
        request.waiting += 1
        partition = self._partitions.find(name.topic, name.partition)
        end = NOT_LED if partition is None else self._append(partition, marker)
        if isinstance(end, ApiError):
            request.settle(at, name, end)
            return
        assert partition is not None
        committed = partial(request.settle, at, name)
        if partition.when_acknowledged(end, committed, COMMIT_TIMEOUT_MS):
            committed(None)

    def _append(self, partition: LeaderPartition, marker: TransactionMarker) -> Offset | ApiError:
        """Append a marker; returns up to where the log has to be committed."""
        if partition.stopped is not None:
            return partition.stopped
        if self._clock.now() >= self._partitions.lease.until and len(partition.isr.assignment.isr) == 1:
            # As for Produce: what no other replica confirms, another leader may not know of.
            return NO_LEASE
        if not partition.has_min_isr:
            return TOO_FEW
        now = self._clock.wall()
        control = ControlRecord(
            partition.log.end,
            now,
            ControlType.COMMIT if marker.is_commit else ControlType.ABORT,
            marker.producer_id,
            marker.producer_epoch,
            marker.coordinator_epoch,
        )
        verdict = partition.log.producers.check_marker(control, marker.transaction_version)
        if isinstance(verdict, ApiError):
            return verdict
        if isinstance(verdict, DuplicateMarker):
            return partition.log.end
        append = partial(append_marker, partition, control, now)
        coordinators = self._coordinators.get(partition.name.topic)
        if coordinators is not None:
            end = coordinators.end_transaction(partition, append, control)
        else:
            end = append()
        if not isinstance(end, ApiError):
            self._verification.marker_written(
                partition, marker.producer_id, marker.producer_epoch, marker.transaction_version
            )
        return end


def append_marker(partition: LeaderPartition, marker: ControlRecord, now: Timestamp) -> Offset | ApiError:
    """Write the control batch; returns the end of the log behind it."""
    batch = write_control_batch(marker, leader_epoch=partition.leader_epoch)
    try:
        appended = partition.append(batch, (read_header(batch),), now)
    except PartitionStopped as error:
        return ApiError(ErrorKind.NOT_LEADER, str(error))
    except StorageError as error:
        return ApiError(ErrorKind.STORAGE_FAILED, str(error))
    return Offset(appended.last_offset + 1)
