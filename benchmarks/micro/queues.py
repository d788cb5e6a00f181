"""Queues: taking, leasing and finishing 500 records, with their records in the log; a million delays."""

from random import Random
from time import perf_counter
from uuid import UUID

from benchmarks.micro.measure import time_us
from penstock.broker.coordinator.queue_records import encode
from penstock.core.delays import DelayCoordinator, DelayedRecords, DelaysStored
from penstock.core.model import Instant, LeaderEpoch, Now, Offset, PartitionIndex, Timestamp, TopicId
from penstock.core.queues import (
    AcknowledgeRecords,
    AcquireRecords,
    LeaseClaim,
    OfferRecords,
    OpenQueue,
    QueueCommand,
    QueueCoordinator,
    QueueId,
    QueueReply,
    QueueSettings,
    RecordsAcquired,
    Run,
)

BATCH = 500
DELAYS = 1_000_000
QUEUE = QueueId("workers", TopicId(UUID(int=7)), PartitionIndex(0))
EPOCH = LeaderEpoch(0)
NOW_MS = 1_700_000_000_000
PAGE_BYTES = 4_096


class Host:
    """Decides, encodes and applies, as the coordinator runtime does; nothing is written."""

    def __init__(self) -> None:
        self.machine = QueueCoordinator()
        self.end = self.token = 0
        self.machine.resume(Now(Instant(0), Timestamp(NOW_MS)))
        bounds = {"log_start": Offset(0), "log_end": Offset(2**40), "start": Offset(0)}
        self.submit(OpenQueue(**self._common, settings=QueueSettings(), **bounds))  # type: ignore[arg-type]

    @property
    def _common(self) -> dict[str, object]:
        return {"on_reply": _ignore, "queue": QUEUE, "leader_epoch": EPOCH}

    def submit(self, command: QueueCommand) -> QueueReply:
        outcome = self.machine.decide(command, Now(Instant(0), Timestamp(NOW_MS)))
        for fact in outcome.facts:
            encode(fact)
            self.machine.apply(fact)
        self.machine.next_deadline()
        return outcome.responses[0][1]

    def round(self) -> None:
        run = Run(Offset(self.end), Offset(self.end + BATCH))
        self.end, self.token = run.end, self.token + 1
        self.submit(OfferRecords(**self._common, start=run.start, end=run.end, plain=(run,)))  # type: ignore[arg-type]
        acquire = AcquireRecords(**self._common, consumer="c", records_max=BATCH, token=self.token)  # type: ignore[arg-type]
        acquired = self.submit(acquire)
        assert isinstance(acquired, RecordsAcquired)
        assert len(acquired.records) == BATCH
        claims = tuple(LeaseClaim(offset, attempt, self.token) for offset, attempt in acquired.records)
        self.submit(AcknowledgeRecords(on_reply=_ignore, queue=QUEUE, claims=claims))


def run() -> dict[str, float]:
    host = Host()
    results = {"take_lease_finish_us_per_record": time_us(host.round) / BATCH}
    before, started = _resident_bytes(), perf_counter()
    machine, luck = DelayCoordinator(Timestamp(NOW_MS)), Random(7)
    for offset in range(DELAYS):
        deliver_at = NOW_MS + 100_000 + luck.randrange(86_400_000)
        # The worst there is: each alone, anywhere.
        records = DelayedRecords(
            "orders", (luck.getrandbits(63),), (deliver_at,), (-1,), (3,), b"\x01\x01\x00"
        )
        machine.apply(DelaysStored(records, offset=Offset(offset)))
    results["million_delays_mb"] = (_resident_bytes() - before) / 1e6
    results["delay_apply_us"] = (perf_counter() - started) * 1e6 / DELAYS
    return results


def _ignore(_: QueueReply) -> None:
    """Replies are looked at where they are made."""


def _resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * PAGE_BYTES
