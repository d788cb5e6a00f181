"""Verifies parts of segments in a thread, and makes known what is damaged."""

from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeAlias

from penstock.core.model import SECOND, Instant, Offset, PenstockError, StorageError, TopicPartition
from penstock.observability import log as events
from penstock.runtime import ExecutorKind, Runtime
from penstock.storage.log import CorruptRange, PartitionLog, RebuiltIndex, Verification, VerifiedBytes

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


class SegmentVerifier:
    """Runs verifications on the disk executor."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        # Until when a segment, by directory and base offset, is not verified again.
        self._rests_until: dict[tuple[str, Offset], Instant] = {}

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
