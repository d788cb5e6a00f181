"""What queues guarantee, checked against what their consumers did and were given.

Values are unique. A delivery counts from when a node writes the response with its record, whether or not
that arrives; its lease from when the consumer asked. At once:

    unexpected          a value that nobody sent, or at another offset than before
    two live leases     delivered again before the lease of an earlier delivery ends, and nobody released it
    attempts            the same one twice, one that is lower than an earlier one, more than the limit
    delivery after ack  or after a rejection: an attempt behind the one that was finished
    lost lease          a receipt is refused though its lease lasts, or an old one is accepted
    early               before `deliver_at`, whichever node's clock it was, or before the delay of a release
    expired             delivered after its time to live, whichever node's clock it was
    paused              asked for and delivered while the queue is paused for certain
    key order           a record of a key after a later one, or while another one of it is leased

A member of a share group has its leases for as long as it is surely a member: what it got before it was
removed, left, or ended its session may be released then, and what it got since may not. It has no receipts,
so that what is on its way counts for the next delivery to it.

At the end, when all queues are drained, from the records of the topics and of the dead-letter topics:

    lost                nobody may have acknowledged it, and it is no dead letter; or it was given up for
                        certain, and is none
    both live           acknowledged or delivered again, and a dead letter; or a dead letter twice
    wrong limit         given up after another number of deliveries, and nobody rejected it
    redriven            a dead letter that is copied or lost when it is moved, or is there though it was moved
    duplicated input    two committed transactions have acknowledged the same record

There are no excuses: producers wait for all replicas in sync, and no election is unclean.
"""

import enum
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from penstock.core.model import MILLISECOND
from penstock.sim.checkers.transactions import LogPlace, TransactionHistory

# Clocks of nodes run faster or slower than the consumers' by less.
DRIFT = 1_000
NO_TIME = -1


class QueuePolicy(NamedTuple):
    """What a group's queues promise."""

    deliveries_max: int
    is_key_ordered: bool
    backoff_ms: int
    backoff_ms_max: int


class SentRecord(NamedTuple):
    """What a producer said about a record."""

    key: bytes | None = None
    # Wall-clock times in milliseconds.
    deliver_at: int = NO_TIME
    expires_at: int = NO_TIME


class SettleAction(enum.Enum):
    """What a consumer asks for; the values are those of QueueSettle."""

    ACKNOWLEDGE = 0
    RELEASE = 1
    REJECT = 2
    RENEW = 3


class SettleOutcome(enum.Enum):
    """What is known of a request."""

    UNKNOWN = "unknown"
    CONFIRMED = "confirmed"
    REFUSED = "refused"


@dataclass(slots=True, eq=False)
class Settlement:
    """One request about one delivery."""

    action: SettleAction
    asked: int
    # Of a release; None: the backoff of the group.
    delay_ms: int | None = None
    lease_ns: int = 0
    transaction: TransactionHistory | None = None
    outcome: SettleOutcome = SettleOutcome.UNKNOWN


@dataclass(slots=True, eq=False)
class ShareMembership:
    """A member of a share group, from one join to the next."""

    # It is a member until then at least; later it may be removed, and what it has released.
    sure_until: int = 0
    # It has left, or joined again.
    is_over: bool = False


@dataclass(slots=True, eq=False)
class QueueDelivery:
    """A record that was delivered once."""

    group: str
    consumer: str
    place: LogPlace
    offset: int
    value: bytes
    attempt: int
    asked: int
    written: int
    # Before that nobody else gets the record, unless it is released.
    lease_end: int
    settlements: list[Settlement] = field(default_factory=list)
    # Of a share consumer, which has no receipts.
    membership: ShareMembership | None = None
    # Its session was ended, and with it the lease, sooner or later.
    is_released: bool = False

    def __str__(self) -> str:
        topic, partition = self.place
        return (
            f"{topic}/{partition}/{self.offset} of {self.group}, delivery {self.attempt} to {self.consumer}"
        )

    def has_asked(self, *actions: SettleAction) -> bool:
        return any(each.action in actions for each in self.settlements)

    def may_be_lost(self, now: int) -> bool:
        """Whether the lease may have ended because its consumer was gone."""
        member = self.membership
        return self.is_released or (member is not None and (member.is_over or now > member.sure_until))

    def confirmed(self, action: SettleAction) -> Iterator[Settlement]:
        """What was granted, without what a transaction decides."""
        for each in self.settlements:
            if each.action is action and each.outcome is SettleOutcome.CONFIRMED and each.transaction is None:
                yield each


@dataclass(slots=True, eq=False)
class PauseAttempt:
    """One request to pause or resume a queue; `done_at` is when a node wrote that it is."""

    is_paused: bool
    done_at: int | None = None


class RedrivenPartition(NamedTuple):
    """What the end shows of dead letters of one partition that somebody had moved.

    Those of the dead-letter topic by offset, those of them that are finished there, and what is in the
    partition that they were moved to.
    """

    place: LogPlace
    letters: Mapping[int, bytes]
    finished: Sequence[int]
    moved: Sequence[bytes]


class DeadLetterCopy(NamedTuple):
    """A record of a dead-letter topic."""

    group: str
    place: LogPlace
    offset: int
    value: bytes
    attempts: int


RecordKey: TypeAlias = tuple[str, LogPlace, int]
CONFIRMED, REFUSED, UNKNOWN = SettleOutcome.CONFIRMED, SettleOutcome.REFUSED, SettleOutcome.UNKNOWN
ACKNOWLEDGE, RELEASE = SettleAction.ACKNOWLEDGE, SettleAction.RELEASE
REJECT, RENEW = SettleAction.REJECT, SettleAction.RENEW


@dataclass(slots=True)
class QueueChecker:
    """Queues and their consumers, in the order in which things happened."""

    policies: dict[str, QueuePolicy] = field(default_factory=dict)
    anomalies: list[str] = field(default_factory=list)
    deliveries: int = 0
    redeliveries: int = 0
    dead_letters: int = 0
    expired: int = 0
    transactional_acks: int = 0
    # To members of share groups, and how many of those were removed though they lived.
    share_deliveries: int = 0
    removals: int = 0
    # How often a queue was paused for certain.
    pauses: int = 0
    # Dead letters that were moved, as the end shows.
    redriven: int = 0
    counts: dict[tuple[SettleAction, SettleOutcome], int] = field(default_factory=dict)
    # How wrong the clocks of nodes ever were, in milliseconds.
    _skew_min: int = 0
    _skew_max: int = 0
    _sent: dict[LogPlace, dict[bytes, SentRecord]] = field(default_factory=dict)
    _values: dict[tuple[LogPlace, int], bytes] = field(default_factory=dict)
    _delivered: dict[RecordKey, list[QueueDelivery]] = field(default_factory=dict)
    _pauses: dict[tuple[str, LogPlace], list[PauseAttempt]] = field(default_factory=dict)
    # Those that somebody was told of.
    _redriven: dict[LogPlace, dict[int, None]] = field(default_factory=dict)
    _by_key: dict[tuple[str, LogPlace, bytes], list[QueueDelivery]] = field(default_factory=dict)

    @property
    def acknowledgements(self) -> int:
        """How many records were acknowledged for certain."""
        return self.counts.get((ACKNOWLEDGE, CONFIRMED), 0)

    def clock_is_off(self, skew_ms: int) -> None:
        """The wall clock of a node shows so much more than it is."""
        self._skew_min = min(self._skew_min, skew_ms)
        self._skew_max = max(self._skew_max, skew_ms)

    def sending(self, place: LogPlace, value: bytes, record: SentRecord) -> None:
        """A producer sends a record for the first time."""
        self._sent.setdefault(place, {})[value] = record

    def delivered(self, delivery: QueueDelivery, wall_ms: int) -> None:
        """A node writes a response with a record; `wall_ms` is what a right clock shows."""
        record = self._record(delivery)
        known = self._delivered.setdefault((delivery.group, delivery.place, delivery.offset), [])
        self.deliveries += 1
        self.redeliveries += bool(known)
        self.share_deliveries += delivery.membership is not None
        if delivery.attempt > self.policies[delivery.group].deliveries_max:
            self._wrong("attempts", delivery, "are more than the limit")
        for other in known:
            self._compare(other, delivery)
            if delivery.membership is not None and other.consumer == delivery.consumer:
                # What is on its way still will be taken for the new delivery.
                delivery.settlements += [each for each in other.settlements if each.outcome is UNKNOWN]
        if delivery.attempt == 1 and wall_ms + self._skew_max < record.deliver_at:
            self._wrong("early", delivery, f"at {wall_ms}, it is for {record.deliver_at}")
        asked_ms = wall_ms - (delivery.written - delivery.asked) // MILLISECOND
        if 0 <= record.expires_at < asked_ms + self._skew_min:
            self._wrong("expired", delivery, f"asked for at {asked_ms}, it was until {record.expires_at}")
        self._check_pause(delivery)
        if record.key is not None and self.policies[delivery.group].is_key_ordered:
            self._check_key(delivery, record.key)
        known.append(delivery)

    def pausing(self, group: str, place: LogPlace, attempt: PauseAttempt) -> PauseAttempt:
        """Somebody asks for a queue to be paused or resumed, and nobody else does."""
        self._pauses.setdefault((group, place), []).append(attempt)
        return attempt

    def paused(self, attempt: PauseAttempt, now: int) -> None:
        """A node writes that it was done."""
        attempt.done_at = now
        self.pauses += attempt.is_paused

    def _check_pause(self, delivery: QueueDelivery) -> None:
        attempts = self._pauses.get((delivery.group, delivery.place), ())
        # What nobody knows of may still be on its way.
        if not attempts or any(not each.is_paused and each.done_at is None for each in attempts):
            return
        done_at = attempts[-1].done_at
        if attempts[-1].is_paused and done_at is not None and done_at <= delivery.asked:
            passed_ms = (delivery.asked - done_at) // MILLISECOND
            self._wrong("paused", delivery, f"was asked for {passed_ms} ms after the queue was paused")

    def _record(self, delivery: QueueDelivery) -> SentRecord:
        place, offset, value = delivery.place, delivery.offset, delivery.value
        before = self._values.setdefault((place, offset), value)
        if before != value:
            self._wrong("unexpected", delivery, f"is {value!r}, it was {before!r}")
        record = self._sent.get(place, {}).get(value)
        if record is None:
            self._wrong("unexpected", delivery, f"is {value!r}, which nobody sent")
        return record or SentRecord()

    def _compare(self, other: QueueDelivery, delivery: QueueDelivery) -> None:
        """Another delivery of the same record, whose response was written before."""
        if other.attempt == delivery.attempt:
            self._wrong("attempts", delivery, f"was one to {other.consumer} as well")
            return
        if delivery.asked >= other.written and delivery.attempt < other.attempt:
            self._wrong("attempts", delivery, f"follows delivery {other.attempt}")
        first, second = (other, delivery) if other.attempt < delivery.attempt else (delivery, other)
        is_released = first.has_asked(RELEASE) or first.may_be_lost(delivery.written)
        # An acknowledgement is no reason: if it was carried out, there is nothing to deliver.
        if second.written < first.lease_end and not is_released:
            self._wrong(
                "two live leases",
                second,
                f"{(first.lease_end - second.written) // MILLISECOND} ms before the lease of {first} ends",
            )
        for each in (*first.confirmed(ACKNOWLEDGE), *first.confirmed(REJECT)):
            self._wrong("delivery after ack", second, f"though {each.action.name} of {first} was confirmed")
        for release in first.confirmed(RELEASE):
            self._check_delay(first, release, second)

    def _check_delay(self, released: QueueDelivery, release: Settlement, following: QueueDelivery) -> None:
        delay_ms = release.delay_ms
        if delay_ms is None:
            policy = self.policies[released.group]
            delay_ms = min(policy.backoff_ms_max, policy.backoff_ms << (released.attempt - 1)) // 2
        delay_ns = delay_ms * MILLISECOND
        if following.written < release.asked + delay_ns - delay_ns // DRIFT:
            passed_ms = (following.written - release.asked) // MILLISECOND
            self._wrong("early", following, f"{passed_ms} ms after it was released for {delay_ms} ms")

    def _check_key(self, delivery: QueueDelivery, key: bytes) -> None:
        of_key = self._by_key.setdefault((delivery.group, delivery.place, key), [])
        for other in of_key:
            if other.offset > delivery.offset and other.written <= delivery.asked:
                self._wrong("key order", delivery, f"comes after {other}, of the same key")
            is_held = not other.settlements and delivery.written < other.lease_end
            if other.offset < delivery.offset and is_held and other.written <= delivery.asked:
                self._wrong("key order", delivery, f"while {other} of the same key is leased")
        of_key.append(delivery)

    def settling(self, delivery: QueueDelivery, settlement: Settlement) -> Settlement:
        """A consumer asks for something about a delivery, perhaps not for the first time."""
        delivery.settlements.append(settlement)
        return settlement

    def settled(self, delivery: QueueDelivery, settlement: Settlement, now: int, *, granted: bool) -> None:
        """A node writes the response."""
        settlement.outcome = CONFIRMED if granted else REFUSED
        action = settlement.action
        counted = (action, settlement.outcome)
        self.counts[counted] = self.counts.get(counted, 0) + 1
        later = [
            each
            for each in self._delivered[delivery.group, delivery.place, delivery.offset]
            if each.attempt > delivery.attempt
        ]
        heirs = [each for each in later if settlement in each.settlements]
        if heirs:
            delivery.settlements.remove(settlement)
            delivery, later = heirs[-1], [each for each in later if each.attempt > heirs[-1].attempt]
        if not granted:
            is_first = delivery.settlements[0] is settlement
            is_held = now < delivery.lease_end and not delivery.may_be_lost(now)
            if is_first and is_held and not later:
                self._wrong("lost lease", delivery, f"{action.name} was refused before the lease ended")
            return
        if settlement.transaction is not None:
            self.transactional_acks += 1
        is_final = action in (ACKNOWLEDGE, REJECT) and settlement.transaction is None
        stale = [each for each in later if is_final or each.written < settlement.asked]
        if stale:
            self._wrong("lost lease", delivery, f"{action.name} was granted after {stale[0]}")
        if action is RENEW:
            lease_end = settlement.asked + settlement.lease_ns - settlement.lease_ns // DRIFT
            delivery.lease_end = max(delivery.lease_end, lease_end)

    def check(
        self,
        logs: Mapping[str, Mapping[LogPlace, Sequence[tuple[int, bytes]]]],
        letters: Iterable[DeadLetterCopy],
        committed: Mapping[str, object],
        wall_ms: int,
    ) -> list[str]:
        """Every anomaly that the end shows: with all queues drained, nothing is under way.

        `logs` has the committed records that each group had to do, `committed` the names of the
        transactions that the end shows to be committed.
        """
        found: dict[RecordKey, list[DeadLetterCopy]] = {}
        anomalies: list[str] = []
        for letter in letters:
            self.dead_letters += 1
            found.setdefault((letter.group, letter.place, letter.offset), []).append(letter)
        for group, places in logs.items():
            for place, records in places.items():
                for offset, value in records:
                    key = (group, place, offset)
                    fate = _Fate(
                        f"{place[0]}/{place[1]}/{offset} of {group}, {value!r}",
                        self._delivered.get(key, []),
                        found.pop(key, []),
                        self.policies[group],
                        committed,
                    )
                    anomalies += fate.check(value, may_expire=self._may_expire(place, value, wall_ms))
                    self.expired += fate.is_expired
        anomalies += [f"both live: {key} is a dead letter, and not in the log" for key in found]
        return anomalies

    def told_redriven(self, place: LogPlace, offset: int) -> None:
        """A node writes that it has moved a dead letter."""
        told = self._redriven.setdefault(place, {})
        if offset in told:
            self.anomalies.append(f"redriven: {place[0]}/{place[1]}/{offset} was moved twice")
        told[offset] = None

    def check_redriven(self, partition: RedrivenPartition) -> list[str]:
        """Every dead letter is where it was, or moved, and not both."""
        place, letters, finished, moved = partition
        name = f"{place[0]}/{place[1]}"
        gone, there = Counter(letters[offset] for offset in finished), Counter(moved)
        self.redriven += len(moved)
        anomalies = [
            f"redriven: {value!r} is finished {gone[value]} times in {name}, and moved {there[value]} times"
            for value in gone | there
            if gone[value] != there[value]
        ]
        still = [offset for offset in self._redriven.get(place, ()) if offset not in finished]
        anomalies += [f"redriven: {name}/{offset} was moved, and is there still" for offset in still]
        return anomalies

    def _may_expire(self, place: LogPlace, value: bytes, wall_ms: int) -> bool:
        record = self._sent.get(place, {}).get(value)
        return record is not None and 0 <= record.expires_at <= wall_ms + self._skew_max

    def _wrong(self, what: str, delivery: QueueDelivery, detail: str) -> None:
        self.anomalies.append(f"{what}: {delivery} {detail}")


@dataclass(slots=True)
class _Fate:
    """What became of one record for one group."""

    name: str
    deliveries: list[QueueDelivery]
    letters: list[DeadLetterCopy]
    policy: QueuePolicy
    committed: Mapping[str, object]
    is_expired: bool = False

    def check(self, value: bytes, *, may_expire: bool) -> Iterator[str]:
        done = [each for each in self.deliveries if any(self._finishes(s) for s in each.settlements)]
        certain = [each for each in done if any(self._finishes(s, certain=True) for s in each.settlements)]
        for letter in self.letters:
            yield from self._check_letter(letter, value)
        yield from self._check_acks(certain)
        if len(self.letters) > 1 or (self.letters and certain):
            yield f"both live: {self.name}: {len(self.letters)} dead letters, {len(certain)} acknowledged"
        if not self.letters:
            yield from self._check_given_up()
            self.is_expired = may_expire and not done
            if not done and not may_expire:
                yield f"lost: nobody has finished {self.name}, after {len(self.deliveries)} deliveries"

    def _check_given_up(self) -> Iterator[str]:
        for each in self.deliveries:
            if any(self._gives_up(each, settlement) for settlement in each.settlements):
                yield f"lost: {self.name} was given up at {each}, and is no dead letter"

    def _check_acks(self, certain: list[QueueDelivery]) -> Iterator[str]:
        for first, second in itertools.combinations(certain, 2):
            yield f"duplicated input: {self.name} was acknowledged by {first} and by {second}"
        for ack in certain:
            for each in self.deliveries:
                if each.attempt > ack.attempt:
                    yield f"delivery after ack: {each} though {ack} was acknowledged"

    def _check_letter(self, letter: DeadLetterCopy, value: bytes) -> Iterator[str]:
        if letter.value != value:
            yield f"unexpected: the dead letter of {self.name} is {letter.value!r}"
        is_rejected = any(
            each.attempt == letter.attempts and each.has_asked(REJECT) for each in self.deliveries
        )
        if letter.attempts != self.policy.deliveries_max and not is_rejected:
            yield f"wrong limit: {self.name} was given up after {letter.attempts} deliveries"
        for each in self.deliveries:
            if each.attempt > letter.attempts:
                yield f"both live: {each}, though it was given up after {letter.attempts}"

    def _finishes(self, settlement: Settlement, *, certain: bool = False) -> bool:
        """Whether a request may have acknowledged the record, or has for certain."""
        if settlement.action is not ACKNOWLEDGE or settlement.outcome is REFUSED:
            return False
        transaction = settlement.transaction
        if transaction is not None and transaction.name not in self.committed:
            return False
        return settlement.outcome is CONFIRMED or not certain

    def _gives_up(self, delivery: QueueDelivery, settlement: Settlement) -> bool:
        is_last = delivery.attempt >= self.policy.deliveries_max
        is_failure = settlement.action is REJECT or (settlement.action is RELEASE and is_last)
        return is_failure and settlement.outcome is CONFIRMED
