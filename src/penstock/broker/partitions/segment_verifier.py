"""Verifies parts of segments in a thread, and makes known what is damaged."""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol, TypeAlias

from penstock.core.model import SECOND, Instant, Offset, PenstockError, StorageError, TopicPartition
from penstock.observability import log as events
from penstock.runtime import ExecutorKind, Runtime
from penstock.storage.log import (
    CorruptRange,
    FileRange,
    PartitionLog,
    RebuiltIndex,
    Verification,
    VerifiedBytes,
)
from penstock.storage.log.types import ServableFile

# A segment that was found intact is not verified again for this long, whatever others report.
REST_NS = 60 * SECOND
# One that was not: it is repaired meanwhile, and what is reported then is something else.
RETRY_NS = 1 * SECOND
STEP_BYTES = 1 << 20


class VerifiedLog(Protocol):
    """A leader or a replica whose log is verified."""

    @property
    def name(self) -> TopicPartition: ...

    @property
    def log(self) -> PartitionLog: ...

    def on_damage(self) -> None:
        """Damage was found in the log."""


class VerificationResult(NamedTuple):
    """The new damage, and which position and offset of the segment were reached.

    Unless it `is_whole`, something is damaged, or the segment was replaced or cut meanwhile (it is not
    `is_current`): then what was read before must be read again.
    """

    damage: tuple[CorruptRange, ...]
    is_whole: bool
    is_current: bool
    position: int
    offset: int


# With None, the verification was not possible.
OnVerified: TypeAlias = Callable[[VerificationResult | None], None]


# Somebody else had it verified.
SERVABLE = VerificationResult((), is_whole=True, is_current=True, position=0, offset=0)


class SegmentVerifier:
    """Runs verifications on the disk executor."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        # Until when a segment, by directory and base offset, is not verified again.
        self._rests_until: dict[tuple[str, Offset], Instant] = {}
        # Until when a log, by directory, is not distrusted again because a client asks twice.
        self._trusted_until: dict[str, Instant] = {}
        # For each file that is being verified: who waits for ranges of it.
        self._waiting: dict[ServableFile, deque[tuple[VerifiedLog, FileRange, OnVerified]]] = {}

    def verify(self, owner: VerifiedLog, verification: Verification, done: OnVerified) -> None:
        """Verify, and call `done` later."""

        def worked(found: VerifiedBytes) -> None:
            try:
                outcome = verification.finish(found)
            except PenstockError as error:
                # Damage in the growing segment, and no room for another one.
                failed(error)
                return
            if isinstance(outcome, Verification):
                self.verify(owner, outcome, done)
                return
            for damage in outcome.damage:
                events.error(
                    "partition.corrupt_range",
                    partition=str(owner.name),
                    segment=damage.segment,
                    start=damage.start,
                    end=damage.end,
                    reason=damage.reason,
                )
            if outcome.damage:
                owner.on_damage()
            done(VerificationResult(*outcome, found.position, found.offset))

        def failed(error: Exception) -> None:
            events.warning("partition.verification_failed", partition=str(owner.name), error=error)
            done(None)

        self._runtime.spawn.spawn(verification.work, worked, failed, ExecutorKind.DISK)

    def verify_range(self, owner: VerifiedLog, piece: FileRange, done: OnVerified) -> None:
        """Verify a range that is to be served, unless that has happened when its turn comes.

        One at a time for each file: many who ask for the same have it read once.
        """
        waiting = self._waiting.get(piece.file)
        if waiting is None:
            self._waiting[piece.file] = deque()
            self._verify_next(owner, piece, done)
        else:
            waiting.append((owner, piece, done))

    def _verify_next(self, owner: VerifiedLog, piece: FileRange, done: OnVerified) -> None:
        def verified(result: VerificationResult | None) -> None:
            # Not in the same turn of the loop: there may be thousands of them.
            self._runtime.timers.soon(partial(self._take_turn, piece.file))
            done(result)

        try:
            verification = owner.log.verification(piece)
        except StorageError as error:
            events.warning("partition.verification_failed", partition=str(owner.name), error=error)
            verification = None
        if verification is None:
            # Its segment was deleted meanwhile, or there is no descriptor left: the client asks again.
            self._runtime.timers.soon(partial(verified, None))
        else:
            self.verify(owner, verification, verified)

    def _take_turn(self, file: ServableFile) -> None:
        """Go on with the next one that waits for a file."""
        waiting = self._waiting[file]
        if not waiting:
            del self._waiting[file]
            return
        owner, piece, done = waiting.popleft()
        if _is_servable(piece):
            self._runtime.timers.soon(partial(self._take_turn, file))
            done(SERVABLE)
        else:
            self._verify_next(owner, piece, done)

    def distrust(self, owner: VerifiedLog, offset: Offset) -> None:
        """A client asks again for what it was sent: verify it before it is served; not too often."""
        now = self._runtime.clock.now()
        if now < self._trusted_until.get(owner.log.directory, now):
            return
        self._trusted_until = {key: until for key, until in self._trusted_until.items() if now < until}
        self._trusted_until[owner.log.directory] = Instant(now + RETRY_NS)
        owner.log.distrust(offset)

    def suspect(self, owner: VerifiedLog, offset: Offset) -> None:
        """Verify the segment at `offset`, since somebody had trouble with it; not too often."""
        now = self._runtime.clock.now()
        self._rests_until = {key: until for key, until in self._rests_until.items() if now < until}
        log = owner.log
        if not log.start <= offset < log.end:
            return
        base_offset = max(one.base_offset for one in log.segments() if one.base_offset <= offset)
        key = (log.directory, base_offset)
        if key in self._rests_until:
            return
        self._rests_until[key] = Instant(now + REST_NS)
        events.warning("partition.segment_suspected", partition=str(owner.name), offset=offset)
        self._go_on(owner, base_offset, 0, base_offset)

    def _go_on(self, owner: VerifiedLog, segment: Offset, position: int, offset: int) -> None:
        """Verify the rest of a segment, a little at a time."""
        key = (owner.log.directory, segment)

        def rest_less() -> None:
            self._rests_until[key] = Instant(self._runtime.clock.now() + RETRY_NS)

        try:
            verification = owner.log.verification_at(segment, position, offset, limit_bytes=STEP_BYTES)
        except StorageError as error:
            # The file cannot be opened now: whoever reads it next meets the same.
            events.warning("partition.verification_failed", partition=str(owner.name), error=error)
            rest_less()
            return
        if verification is None:
            # Its end is reached: perhaps it is an index that was in the way.
            self.rebuild_indexes(owner, segment, lambda: None)
            return

        def verified(result: VerificationResult | None) -> None:
            if result is None or not result.is_whole:
                rest_less()
            if result is not None and result.position > position:
                self._go_on(owner, segment, result.position, result.offset)

        self.verify(owner, verification, verified)

    def rebuild_indexes(
        self, owner: VerifiedLog, segment: Offset, done: Callable[[], None], *, check: bool = True
    ) -> None:
        """Have the indexes of a segment rebuilt (with `check`: if they cannot be used); then call `done`."""
        try:
            rebuild = owner.log.index_rebuild(segment, check=check)
        except StorageError as error:
            events.warning("partition.index_rebuild_failed", partition=str(owner.name), error=error)
            done()
            return
        if rebuild is None:
            done()
            return

        def worked(rebuilt: RebuiltIndex) -> None:
            if rebuild.finish(rebuilt):
                self._rests_until.pop((owner.log.directory, segment), None)
                events.warning("partition.index_rebuilt", partition=str(owner.name), segment=segment)
            done()

        def failed(error: Exception) -> None:
            events.warning("partition.index_rebuild_failed", partition=str(owner.name), error=error)
            done()

        self._runtime.spawn.spawn(rebuild.work, worked, failed, ExecutorKind.DISK)


def _is_servable(piece: FileRange) -> bool:
    try:
        return piece.file.is_servable(piece.position, piece.length)
    except StorageError:
        # The file cannot be opened: the verification meets the same error, and names the range.
        return False
