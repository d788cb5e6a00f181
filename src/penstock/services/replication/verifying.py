"""Looking at a log of which a follower says that it got something damaged out of it.

A leader sends what is in its files without looking at it: batches were checked when they came in.
If a bit has changed since, followers notice, and cannot help it. So the leader checks the segment in
question, a little at a time. What it finds is refused to readers from then on, and the replica resigns
(see `services.partitions`); the next leader has a copy that is whole.
"""

from collections.abc import Iterator

from penstock.core.model import MILLISECOND, SECOND, Instant, Offset, PenstockError
from penstock.observability import log as events
from penstock.runtime import Runtime
from penstock.services.partitions import Partition
from penstock.storage.log import ScrubStep

STEP_MS = 5
# A log that was found whole is not looked at again for so long, whatever is said of it.
REST_NS = 60 * SECOND


class Verifying:
    """Checks segments that are in doubt, each partition once in a while."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._checked_at: dict[Partition, Instant] = {}

    def doubt(self, partition: Partition, position: Offset) -> None:
        """A follower got something damaged from this position on."""
        now = self._runtime.clock.now()
        self._checked_at = {
            one: at for one, at in self._checked_at.items() if now - at < REST_NS and one.stopped is None
        }
        log = partition.log
        if partition in self._checked_at or not log.start <= position < log.end:
            return
        self._checked_at[partition] = now
        events.warning("replication.doubted", partition=str(partition.name), offset=position)
        self._go_on(partition, log.scrub(around=position))

    def _go_on(self, partition: Partition, steps: Iterator[ScrubStep]) -> None:
        if partition.stopped is not None:
            return
        try:
            step = next(steps, None)
        except PenstockError as error:
            events.error("replication.not_verified", partition=str(partition.name), error=error)
            return
        if step is None:
            return
        if step.damage is not None:
            _, start, end, reason = step.damage
            events.error(
                "partition.damaged", partition=str(partition.name), start=start, end=end, reason=reason
            )
        deadline = Instant(self._runtime.clock.now() + STEP_MS * MILLISECOND)
        self._runtime.timers.at(deadline, lambda: self._go_on(partition, steps))
