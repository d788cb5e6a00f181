"""Fetch: reads for consumers as much as they allow, as soon as there is enough.

    fetch ── read every partition ── enough, or an error, or max wait 0 ──► done
                    │
                    └── too little (DelayedFetch): watch the partitions' high watermarks until
                        there is enough, or max wait has passed ──► read once more ──► done

A fetch that waits reads the partition that has news, and adds up what it could get: however many partitions
it waits for, an append costs it one read. How many fetches wait, and for how many partitions, is bounded (see
`ClientShares`): those that find no room, or give way to others, are answered with what there is. A fetch of
very many partitions is read in slices.

A partition is read where it is led, and by consumers that name their rack where it is followed (see
`broker.read_replicas`). Every read needs the broker's lease (see `broker.lease`), also that of a fetch
that waited.
No record is decoded: batches go to the socket as they are in the log; what is encrypted there is opened in
memory first, a millisecond of work at a time. Of a fetch of several partitions, a few KB of one are read into
memory, too: that takes a third of what sendfile does. A range that this node has neither written nor verified
since it started, or that has left the page cache, is read and verified in a thread first. Where a log is
damaged the reader gets an error: one that makes clients look for another leader if there are other replicas,
and otherwise CORRUPT_BATCH, which clients show to their users.
"""

from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

from penstock.broker.client_shares import ClientShares, ShareLimits
from penstock.broker.lease import NO_LEASE, BrokerLease
from penstock.broker.list_offsets import NOT_ESTABLISHED, UNSURE, check_leader_epoch
from penstock.broker.partitions import (
    FollowerPartition,
    LeaderPartition,
    PartitionWatcher,
    ReplicaRole,
    SegmentVerifier,
    VerificationResult,
)
from penstock.core.model import (
    MILLISECOND,
    ApiError,
    CorruptionError,
    ErrorKind,
    Instant,
    NodeId,
    Offset,
    PenstockError,
    StorageError,
)
from penstock.core.replica import AbortedTransaction
from penstock.runtime import Runtime, Timer
from penstock.runtime.fair_queue import Account
from penstock.runtime.sliced_work import NODE_ACCOUNT, SlicedWork, Slices
from penstock.storage.log import DamagedRange, FileRange, OffsetOutOfRange, OpenedBatches, SealedRange

UNKNOWN_EPOCH = -1
NO_REPLICA = -1
# A batch that makes no sense, or a device that does not give it back.
SUSPICIOUS = (ErrorKind.DAMAGED_LOG, ErrorKind.STORAGE_FAILED)
# What is read of a large fetch before others have their turn: it takes about a millisecond.
SLICE_PARTITIONS = 250
# The same where a slice has as many steps as fit.
STEP_PARTITIONS = 5
WAITING_FETCHES_MAX = 20_000
# As many ranges are looked at, and read if they are short, which may open a file for each.
SLICE_RANGES = 64
# What is short, and how much of a response may be read into memory in place of being sent from files.
SHORT_BYTES = 16 << 10
SHORT_BYTES_TOGETHER = 4 << 20


ReadablePartition: TypeAlias = LeaderPartition | FollowerPartition
READABLE = (LeaderPartition, FollowerPartition)


class ReadReplica(NamedTuple):
    """A partition that the consumer should read from another broker."""

    partition: LeaderPartition
    node_id: NodeId


class FetchPartition(NamedTuple):
    """What a consumer wants of one partition; one that is not served here carries its error."""

    partition: ReadablePartition | ReadReplica | ApiError
    offset: int
    max_bytes: int
    leader_epoch: int = UNKNOWN_EPOCH


class FetchLimits(NamedTuple):
    """How large the whole response may be, and how long it may take."""

    min_bytes: int
    max_bytes: int
    max_wait_ms: int
    read_committed: bool = False


class FetchedPartition(NamedTuple):
    """What was found in one partition."""

    error: ApiError | None
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start: int = -1
    # A range of the log; when the fetch is done, its batches if they were sealed, or are few of many.
    records: FileRange | OpenedBatches | None = None
    # None unless the reader asked for committed records only.
    aborted: Sequence[AbortedTransaction] | None = None
    # The broker to read from instead, if there is one.
    read_replica: int = NO_REPLICA


Done = Callable[[list[FetchedPartition]], None]


def waiting_fetch_limits(partitions_max: int = 100_000) -> ShareLimits:
    """How many fetches wait on a node, and for how many partitions: each takes about 600 bytes."""
    return ShareLimits(WAITING_FETCHES_MAX, partitions_max, partitions_max // 2)


class FetchService:
    """Serves fetches of every server."""

    def __init__(
        self,
        runtime: Runtime,
        lease: BrokerLease,
        waiting_limits: ShareLimits | None = None,
        work: SlicedWork | None = None,
    ) -> None:
        self.runtime = runtime
        self._clock = runtime.clock
        self._lease = lease
        self._verifier = SegmentVerifier(runtime)
        # Its length is what waits: one that has nothing to do is no other one.
        self.long_work = SlicedWork(runtime.clock.now, runtime.timers.soon) if work is None else work
        # By the number of their partitions.
        self.waiting: ClientShares[DelayedFetch] = ClientShares(
            waiting_limits or waiting_fetch_limits(), self._evict
        )

    def fetch(
        self,
        wanted: Sequence[FetchPartition],
        limits: FetchLimits,
        done: Done,
        client: str = "",
        account: Account = NODE_ACCOUNT,
    ) -> "DelayedFetch | None":
        """Read now, or wait; `done` may be called before this returns.

        Returns the waiting fetch, if there is one, so that it can be cancelled when the client leaves. One of
        very many partitions is read in slices.
        """
        if len(wanted) > SLICE_PARTITIONS:
            waiting = self.in_slices(wanted, limits, done, client, account)
            self.long_work.run(waiting.begin(), account)
            return waiting
        if self._clock.now() < self._lease.until:
            found, is_enough = read_all(wanted, limits)
        else:
            found, is_enough = _without_lease(wanted), True
        if is_enough or limits.max_wait_ms <= 0:
            self.deliver(wanted, limits, found, done, account)
            return None
        waiting = DelayedFetch(self, wanted, limits, done, client, account)
        if not self.waiting.add(client, waiting, len(wanted)):
            self.deliver(wanted, limits, found, done, account)
            return None
        waiting.start(found)
        return waiting

    def in_slices(
        self,
        wanted: Sequence[FetchPartition],
        limits: FetchLimits,
        done: Done,
        client: str,
        account: Account,
    ) -> "DelayedFetch":
        """The same for very many partitions: `begin` reads them, and it can be cancelled at any time."""
        return DelayedFetch(self, wanted, limits, done, client, account)

    @property
    def has_lease(self) -> bool:
        return self._clock.now() < self._lease.until

    def read_again(
        self, wanted: Sequence[FetchPartition], limits: FetchLimits
    ) -> tuple[list[FetchedPartition], bool]:
        """What there is for a fetch that waited, and whether it is enough."""
        if self._clock.now() < self._lease.until:
            return read_all(wanted, limits)
        return _without_lease(wanted), True

    def read_in_slices(
        self, wanted: Sequence[FetchPartition], limits: FetchLimits, portion: int = SLICE_PARTITIONS
    ) -> Generator[None, None, tuple[list[FetchedPartition], bool]]:
        """The same over several turns of the loop."""
        found: list[FetchedPartition] = []
        size, is_enough = 0, False
        for start in range(0, len(wanted), portion):
            if start:
                yield
            if not self.has_lease:
                return _without_lease(wanted), True
            some, is_settled = read_all(wanted[start : start + portion], limits, size)
            is_enough = is_enough or is_settled
            found += some
            size += sum([part.records.length for part in some if part.records is not None])
        return found, is_enough

    def _evict(self, waiting: "DelayedFetch") -> None:
        # Not now: this is the turn of another client's request.
        self.runtime.timers.soon(waiting.give_way)

    def deliver(  # noqa: C901 - the hot path, straight on purpose
        self,
        wanted: Sequence[FetchPartition],
        limits: FetchLimits,
        found: list[FetchedPartition],
        done: Done,
        account: Account,
    ) -> None:
        """Have what cannot be served as it is read and verified in a thread first.

        So nothing damaged is sent, and sending never makes the loop wait for the device.
        """
        if len(found) != 1:
            steps = self._examine(wanted, limits, found, done, account)
            if next(steps, self) is not self:
                self.long_work.run(steps, account)
            return
        piece = found[0].records
        if piece is None:
            if found[0].error is not None:
                self._suspect_refused(wanted[0], found[0].error)
            done(found)
            return
        if piece.is_sealed:
            done = partial(self._open, wanted, done, account)
        try:
            if piece.file.is_servable(piece.position, piece.length):  # type: ignore[union-attr]  # not opened yet
                done(found)
                return
        except StorageError:
            # The file cannot be opened: the verification meets the same error, and names the range.
            pass
        for _ in self._verify(wanted, limits, found, [0], done):
            pass

    def _examine(
        self,
        wanted: Sequence[FetchPartition],
        limits: FetchLimits,
        found: list[FetchedPartition],
        done: Done,
        account: Account,
    ) -> Slices:
        """The same for several partitions; a range that is short is read now, while its file is open."""
        doubtful: list[int] = []
        is_sealed, memory_left = False, SHORT_BYTES_TOGETHER
        for index, part in enumerate(found):
            if index and index % SLICE_RANGES == 0:
                yield
            piece = part.records
            if piece is None:
                self._suspect_refused(wanted[index], part.error)
                continue
            assert isinstance(piece, FileRange)
            is_sealed = is_sealed or piece.is_sealed
            served = _servable(piece, min(SHORT_BYTES, memory_left))
            if served is None:
                doubtful.append(index)
            elif served is not piece:
                found[index] = part._replace(records=served)
                memory_left -= served.length
        if is_sealed:
            done = partial(self._open, wanted, done, account)
        if not doubtful:
            done(found)
        else:
            yield from self._verify(wanted, limits, found, doubtful, done)

    def _suspect_refused(self, want: FetchPartition, error: ApiError | None) -> None:
        if error is not None and error.kind in SUSPICIOUS:
            self._suspect(want)

    def _open(
        self, wanted: Sequence[FetchPartition], done: Done, account: Account, found: list[FetchedPartition]
    ) -> None:
        """Open what is sealed: a little at once, and more over several turns of the loop."""
        steps = self._opening(wanted, done, found)
        if next(steps, self) is not self:
            self.long_work.run(steps, account)

    def _opening(self, wanted: Sequence[FetchPartition], done: Done, found: list[FetchedPartition]) -> Slices:
        for index, part in enumerate(found):
            if index and index % SLICE_RANGES == 0:
                yield
            piece = part.records
            if isinstance(piece, SealedRange):
                try:
                    opened = yield from piece.open_in_steps()
                except PenstockError as error:
                    found[index] = self._not_opened(wanted[index], part, error)
                else:
                    found[index] = part._replace(records=opened)
        done(found)

    def _not_opened(
        self, want: FetchPartition, part: FetchedPartition, error: PenstockError
    ) -> FetchedPartition:
        """Somebody has changed what was verified before: nothing of it is served."""
        self._suspect(want)
        assert isinstance(want.partition, READABLE)
        refused = _refused_read(want.partition, error)
        return FetchedPartition(refused, part.high_watermark, part.last_stable_offset, part.log_start)

    def _verify(
        self,
        wanted: Sequence[FetchPartition],
        limits: FetchLimits,
        found: list[FetchedPartition],
        doubtful: list[int],
        done: Done,
    ) -> Slices:
        left = len(doubtful)

        def settle(index: int, result: VerificationResult | None) -> None:
            nonlocal left
            if result is None or not result.is_whole:
                was_read = result is not None and result.is_current
                found[index] = _read_verified(wanted[index], limits, was_read=was_read)
            left -= 1
            if left == 0:
                done(found)

        for count, index in enumerate(doubtful):
            if count and count % SLICE_RANGES == 0:
                yield
            partition, piece = wanted[index].partition, found[index].records
            assert isinstance(partition, READABLE)
            assert isinstance(piece, FileRange)
            self._verifier.verify_range(partition, piece, partial(settle, index))

    def distrust(self, partition: ReadablePartition, offset: Offset) -> None:
        """A client asks again for records that it was sent: verify them before they are served."""
        self._verifier.distrust(partition, offset)

    def _suspect(self, want: FetchPartition) -> None:
        """A read met something that makes no sense, unless its range is known to be damaged already."""
        partition = want.partition
        if isinstance(partition, READABLE) and partition.stopped is None:
            log = partition.log
            if not any(damage.start <= want.offset < damage.end for damage in log.corruption):
                self._verifier.suspect(partition, Offset(want.offset))


def _servable(piece: FileRange, short_bytes: int) -> FileRange | OpenedBatches | None:
    """What is sent of a range, in memory if it is short; None if it has to be verified first."""
    try:
        if not piece.is_servable():
            return None
        if piece.is_sealed or piece.length > short_bytes:
            return piece
        content = piece.to_bytes()
    except StorageError:
        return None
    return OpenedBatches(content) if len(content) == piece.length else None


def _read_verified(want: FetchPartition, limits: FetchLimits, *, was_read: bool) -> FetchedPartition:
    """Read once more, now that damage was found or the log has changed; nothing that was not verified.

    If it `was_read` from the device just now, what is not damaged is as good as it was then.
    """
    assert isinstance(want.partition, READABLE)
    part = read_one(want.partition, want, limits, 0)
    piece = part.records
    if not isinstance(piece, FileRange):
        return part
    check = piece.file.is_verified if was_read else piece.file.is_servable
    try:
        is_good = check(piece.position, piece.length)
    except StorageError:
        # The file cannot be opened; the client's next fetch finds out what is the matter.
        is_good = False
    return part if is_good else part._replace(records=None)


class DelayedFetch:
    """One fetch that found too little and waits for more."""

    __slots__ = (
        "_account",
        "_bytes",
        "_client",
        "_done",
        "_fetch_service",
        "_is_ending",
        "_limits",
        "_sizes",
        "_timer",
        "_wake",
        "_wanted",
        "_wants",
    )

    def __init__(
        self,
        fetching: FetchService,
        wanted: Sequence[FetchPartition],
        limits: FetchLimits,
        done: Done,
        client: str,
        account: Account,
    ) -> None:
        self._account = account
        self._fetch_service = fetching
        self._wanted = wanted
        self._limits = limits
        self._client = client
        # None once it is over.
        self._done: Done | None = done
        self._is_ending = False
        self._timer: Timer | None = None
        # One bound method, since partitions compare watchers by identity.
        self._wake: PartitionWatcher = self._more
        self._wants: dict[ReplicaRole, FetchPartition] = {}
        # What it could get now, altogether and of those partitions that have something.
        self._bytes = 0
        self._sizes: dict[ReplicaRole, int] = {}

    def _is_over(self) -> bool:
        return self._done is None or self._is_ending

    def start(self, found: Sequence[FetchedPartition]) -> None:
        """Wait for more than was found."""
        self._set_timer()
        self._watch(self._wanted, found)

    def _set_timer(self) -> None:
        runtime = self._fetch_service.runtime
        deadline = Instant(runtime.clock.now() + self._limits.max_wait_ms * MILLISECOND)
        self._timer = runtime.timers.at(deadline, self._finish)

    def _watch(self, wanted: Sequence[FetchPartition], found: Sequence[FetchedPartition]) -> None:
        for want, part in zip(wanted, found, strict=True):
            partition = want.partition
            if isinstance(partition, READABLE):
                self._wants[partition] = want
                if part.records is not None:
                    self._sizes[partition] = part.records.length
                    self._bytes += part.records.length
                partition.watch(self._wake)

    @property
    def is_waiting(self) -> bool:
        """Whether it waits for more than there is."""
        return self._timer is not None and not self._is_over()

    def begin(self, portion: int = SLICE_PARTITIONS) -> Slices:
        """Read what there is, over several turns of the loop, and wait if it is too little."""
        is_patient = self._limits.max_wait_ms > 0
        if is_patient:
            is_patient = self._fetch_service.waiting.add(self._client, self, len(self._wanted))
        wanted = self._wanted
        found, is_enough = yield from self._fetch_service.read_in_slices(wanted, self._limits, portion)
        if self._is_over():
            return
        if is_enough or not is_patient:
            self._deliver(found)
            return
        self._set_timer()
        for start in range(0, len(wanted), portion):
            yield
            if self._is_over():
                return
            end = start + portion
            self._watch(wanted[start:end], found[start:end])
            for want, part in zip(wanted[start:end], found[start:end], strict=True):
                partition = want.partition
                # It may have changed since it was read.
                if isinstance(partition, READABLE) and (
                    partition.high_watermark != part.high_watermark or partition.stopped is not None
                ):
                    self._more(partition)

    def _more(self, partition: ReplicaRole) -> None:
        """A partition has more, or has come to an end."""
        if self._is_over():
            return
        if not self._fetch_service.has_lease:
            self._finish()
            return
        want = self._wants[partition]
        assert isinstance(partition, READABLE)
        part = read_one(partition, want, self._limits, 0)
        if part.error is None:
            size = 0 if part.records is None else part.records.length
            self._bytes += size - self._sizes.get(partition, 0)
            self._sizes[partition] = size
            if self._bytes < self._limits.min_bytes and not (
                size and want.offset < partition.log.active_start
            ):
                return
        if len(self._wanted) == 1:
            self._deliver([part])
        else:
            self._finish()

    def give_way(self) -> None:
        """Others need its place: end with what there is."""
        if not self._is_over():
            self._finish()

    def _finish(self) -> None:
        """Read everything once more, and deliver it."""
        assert self._done is not None, "a fetch ends once"
        service = self._fetch_service
        if len(self._wanted) > SLICE_PARTITIONS:
            self._is_ending = True
            self._stop_waiting()
            service.long_work.run(self._end(), self._account)
        else:
            self._deliver(service.read_again(self._wanted, self._limits)[0])

    def _end(self) -> Slices:
        found, _ = yield from self._fetch_service.read_in_slices(self._wanted, self._limits)
        if self._done is not None:
            self._deliver(found)

    def _deliver(self, found: list[FetchedPartition]) -> None:
        done = self._done
        assert done is not None, "a fetch ends once"
        self.cancel()
        self._fetch_service.deliver(self._wanted, self._limits, found, done, self._account)

    def cancel(self) -> None:
        """Stop waiting, without calling `done`."""
        self._done = None
        self._stop_waiting()

    def _stop_waiting(self) -> None:
        self._fetch_service.waiting.remove(self._client, self)
        if self._timer is not None:
            self._timer.cancel()
        for partition in self._wants:
            partition.unwatch(self._wake)
        self._wants.clear()
        self._wake = _asleep  # breaks the reference cycle


def _asleep(_: ReplicaRole) -> None:
    """Do nothing: the fetch has ended."""


def _without_lease(wanted: Sequence[FetchPartition]) -> list[FetchedPartition]:
    return [
        FetchedPartition(want.partition if isinstance(want.partition, ApiError) else NO_LEASE)
        for want in wanted
    ]


def read_all(
    wanted: Sequence[FetchPartition], limits: FetchLimits, size: int = 0
) -> tuple[list[FetchedPartition], bool]:
    """Return what there is now, and whether that is enough or waiting could not improve it.

    `size`: what the response has already.
    """
    found: list[FetchedPartition] = []
    is_settled = not wanted
    for want in wanted:
        partition = want.partition
        if isinstance(partition, ApiError):
            part = FetchedPartition(partition)
        elif isinstance(partition, ReadReplica):
            part, is_settled = _redirected(*partition), True
        else:
            part = read_one(partition, want, limits, size)
        found.append(part)
        if part.error is not None:
            is_settled = True
        elif part.records is not None:
            size += part.records.length
    is_enough = is_settled or size >= limits.min_bytes
    return found, is_enough or (size > 0 and _ends_with_a_segment(wanted, found))


def _ends_with_a_segment(wanted: Sequence[FetchPartition], found: list[FetchedPartition]) -> bool:
    """Whether a read stopped at the end of a segment that is full.

    The next segment already has data, so there is no point in waiting.
    """
    for want, part in zip(wanted, found, strict=True):
        if (
            part.records is not None
            and isinstance(want.partition, READABLE)
            and want.offset < want.partition.log.active_start
        ):
            return True
    return False


def read_one(  # noqa: C901 - the hot path, straight on purpose
    partition: ReadablePartition, want: FetchPartition, limits: FetchLimits, size: int
) -> FetchedPartition:
    """Read one partition up to what its readers may see, for a response that has `size` bytes already.

    The first batch of a response is included however large it is, or a consumer could never get
    past it; later partitions return nothing when their first batch does not fit any more.
    """
    _, offset, max_bytes, leader_epoch = want
    log, high_watermark = partition.log, partition.high_watermark
    log_start, stable, log_end = log.positions()
    refused: ApiError | None = None
    if partition.stopped is not None or leader_epoch not in (UNKNOWN_EPOCH, partition.leader_epoch):
        refused = check_leader_epoch(partition, leader_epoch)
    elif not log_start <= offset <= high_watermark and not log_start <= offset <= log_end:
        refused = _out_of_range(partition, offset)
    if refused is not None:
        return FetchedPartition(refused, high_watermark, stable, log_start)
    read_committed = limits.read_committed
    end = stable if read_committed else high_watermark
    left = limits.max_bytes - size
    records: FileRange | None = None
    aborted: Sequence[AbortedTransaction] | None = [] if read_committed else None
    if offset < end and (left > 0 or not size):
        try:
            ranges = log.read_filled(Offset(offset), min(max_bytes, left), end=end).ranges
            if ranges and not (size and ranges[0].length > left):
                records = ranges[0]
                if read_committed:
                    if log.is_unsure and partition.has_other_replicas:
                        return FetchedPartition(UNSURE, high_watermark, stable, log_start)
                    aborted = log.aborted_in(Offset(offset), records, end)
        except PenstockError as error:
            refused = _refused_read(partition, error)
            return FetchedPartition(refused, high_watermark, stable, log_start)
    # Not by its constructor, which is a Python call.
    return tuple.__new__(
        FetchedPartition, (None, high_watermark, stable, log_start, records, aborted, NO_REPLICA)
    )


def _redirected(partition: LeaderPartition, node_id: NodeId) -> FetchedPartition:
    log_start, stable, _ = partition.log.positions()
    if partition.stopped is not None:
        return FetchedPartition(partition.stopped)
    partition.readers_redirected()
    return FetchedPartition(None, partition.high_watermark, stable, log_start, read_replica=node_id)


def _out_of_range(partition: ReadablePartition, offset: int) -> ApiError:
    log = partition.log
    if offset > log.end and not partition.is_established:
        return NOT_ESTABLISHED
    return ApiError(ErrorKind.OFFSET_OUT_OF_RANGE, f"offset {offset} is not within {log.start}..{log.end}")


def _refused_read(partition: ReadablePartition, error: PenstockError) -> ApiError:
    if isinstance(error, OffsetOutOfRange):
        return ApiError(ErrorKind.OFFSET_OUT_OF_RANGE, str(error))
    if isinstance(error, DamagedRange) and not partition.has_other_replicas:
        # Nobody else has these records: a client that tried again would do so for ever.
        return ApiError(ErrorKind.CORRUPT_BATCH, str(error))
    if isinstance(error, CorruptionError):
        return ApiError(ErrorKind.DAMAGED_LOG, str(error))
    return ApiError(ErrorKind.STORAGE_FAILED, str(error))
