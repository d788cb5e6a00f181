"""A queue as a child would write it: a list of records, looked through from the start for every question."""

from dataclasses import dataclass, field

from penstock.core.queues import LeaseClaim, QueueRecord, RecordsAcquired, RecordState, TransactionProducer


@dataclass
class ModelRecord:
    """One record of the log, from its being taken until it is finished."""

    record: QueueRecord
    state: RecordState | None = RecordState.AVAILABLE  # None: finished
    attempts: int = 0
    delay_ms: int = 0
    not_before_ms: int = 0
    token: int = -1
    consumer: str = ""
    lease_ms: int = 0
    lease_until_ms: int = 0
    producer: TransactionProducer | None = None
    deliveries: list[tuple[int, int]] = field(default_factory=list)

    @property
    def is_leased(self) -> bool:
        return self.state is RecordState.LEASED


class QueueModel:
    """What must be true of one queue. Times are milliseconds of one clock that never fails."""

    def __init__(self, deliveries_max: int, is_key_ordered: bool, expired_max: int) -> None:
        self.deliveries_max = deliveries_max
        # So many expired records end a search.
        self.expired_max = expired_max
        self.is_key_ordered = is_key_ordered
        self.records: dict[int, ModelRecord] = {}
        self.is_paused = False
        self.end = 0

    def take(self, records: list[QueueRecord], now_ms: int, wall_ms: int) -> None:
        for record in records:
            known = self.records[record.offset] = ModelRecord(record)
            if 0 <= record.expires_at <= wall_ms:
                known.state = None
            elif record.deliver_at > wall_ms:
                known.not_before_ms = now_ms + record.deliver_at - wall_ms

    def advance(self, now_ms: int) -> None:
        for known in self.records.values():
            if known.is_leased and known.producer is None and known.lease_until_ms <= now_ms:
                self.fail(known, 0, now_ms)

    def fail(self, known: ModelRecord, delay_ms: int, now_ms: int) -> None:
        if known.attempts >= self.deliveries_max:
            known.state = RecordState.MOVING
        else:
            known.state = RecordState.AVAILABLE
            known.delay_ms = delay_ms
            known.not_before_ms = now_ms + delay_ms

    def failover(self, now_ms: int, wall_ms: int) -> None:
        """Durations count in full for the new leader; what is due by the wall clock is still due."""
        for known in self.records.values():
            if known.is_leased:
                known.lease_until_ms = now_ms + known.lease_ms
            elif known.attempts:
                known.not_before_ms = now_ms + known.delay_ms

    def is_eligible(self, known: ModelRecord, now_ms: int) -> bool:
        if known.state is not RecordState.AVAILABLE or known.not_before_ms > now_ms:
            return False
        key = known.record.key
        if not self.is_key_ordered or key is None:
            return True
        before = (
            other
            for other in self.records.values()
            if other.record.key == key and other.record.offset < known.record.offset
        )
        return all(other.state in (None, RecordState.MOVING) for other in before)

    def acquire(
        self, records_max: int, consumer: str, lease_ms: int, now_ms: int, wall_ms: int
    ) -> list[ModelRecord]:
        eligible = [known for known in self.records.values() if self.is_eligible(known, now_ms)]
        eligible.sort(key=lambda known: (-known.record.priority, known.record.offset))
        chosen: list[ModelRecord] = []
        expired = 0
        for known in [] if self.is_paused else eligible:
            if len(chosen) == records_max or expired == self.expired_max:
                break
            if 0 <= known.record.expires_at <= wall_ms:
                known.state = None
                expired += 1
            else:
                chosen.append(known)
        for known in chosen:
            known.state, known.consumer = RecordState.LEASED, consumer
            known.attempts += 1
            known.delay_ms = 0
            known.lease_ms, known.lease_until_ms = lease_ms, now_ms + lease_ms
        return chosen

    def delivered(self, reply: RecordsAcquired, now_ms: int) -> None:
        for offset, attempt in reply.records:
            known = self.records[offset]
            known.token = reply.token
            known.deliveries.append((attempt, now_ms))

    def take_back(self, known: ModelRecord, now_ms: int) -> None:
        """A lease that was none."""
        known.state, known.not_before_ms = RecordState.AVAILABLE, now_ms
        known.attempts -= 1
        known.deliveries.pop()

    def holder_of(self, claim: LeaseClaim) -> ModelRecord | None:
        """The record, if the claim is that of its last delivery and still good."""
        known = self.records.get(claim.offset)
        if known is None or not known.is_leased or known.producer is not None:
            return None
        return known if (known.token, known.attempts) == (claim.token, claim.attempt) else None

    def end_transaction(self, producer_id: int, now_ms: int, *, is_commit: bool) -> None:
        for known in self.records.values():
            if known.producer is not None and known.producer.producer_id == producer_id:
                known.producer = None
                if is_commit:
                    known.state = None
                else:
                    known.lease_until_ms = now_ms + known.lease_ms
