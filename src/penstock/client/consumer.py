"""Reading records: alone or in a group, up to an end that was known before, or for ever.

`PartitionConsumer` reads one partition from one offset on: no group, no reset, nothing skipped
unseen. librdkafka would start elsewhere when an offset is gone; here that is an error like any other,
and the caller decides. It also does not say which offsets held markers or aborted records: whoever
waits for an offset goes by the end of the log that is reported when it is reached.

Left out: what an error means, and how long to wait.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.client.admin import BEGINNING, OffsetSpec, Watermarks, watermarks
from penstock.client.endpoint import (
    REQUEST_SECONDS,
    BrokerUnreachable,
    ClientError,
    Endpoint,
    client_error,
    opened,
    reach,
    reason,
)
from penstock.core.model import SECOND
from penstock.runtime.loop import MachineClock

if TYPE_CHECKING:
    from penstock.client.bad_batch import BadBatch

TURN_SECONDS = 0.2
PATIENCE_SECONDS = 60
# A partition that is between two leaders has the next one well before that.
LEADERLESS_SECONDS = 10
COMMIT_SECONDS = 1
EXTENT_PARTITIONS = 4
# A partition that has records and brings none is looked into after this time.
STUCK_SECONDS = 3
LOOK_SECONDS = 1
_BAD_RECORDS = ("_BAD_COMPRESSION", "_BAD_MSG", "INVALID_MSG")
_LOG_APPEND_TIME = 2
# Nothing gets better by waiting for these.
_HOPELESS = ("_AUTHENTICATION", "_SSL", "SASL_AUTHENTICATION_FAILED")


class ConsumedRecord(NamedTuple):
    """One record as it came."""

    partition: int
    offset: int
    timestamp_ms: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class ConsumerOptions:
    """What to read, from where, and whether there is an end."""

    group: str | None = None
    position: OffsetSpec | None = None
    partition: int | None = None
    follow: bool = False
    batch_records: int = 500
    committed_only: bool = False


class StartOffsetOutOfRange(ClientError):
    """Reading shall start behind the end of every partition."""


def extent(marks: Mapping[int, Watermarks]) -> str:
    """Which offsets partitions hold, in words; of many partitions the first few."""
    shown = [
        f"partition {one} holds offsets {mark.start} to {mark.end - 1}"
        if mark.end > mark.start
        else f"partition {one} is empty" + (f" and goes on at {mark.end}" if mark.end else "")
        for one, mark in sorted(marks.items())[:EXTENT_PARTITIONS]
    ]
    more = len(marks) - len(shown)
    return ", ".join(shown) + (f", and {more} more" if more else "")


class TopicConsumer:
    """Reads one topic. Without `follow` it ends where the partitions ended when it came to them.

    `holds` has the offsets that the partitions held then. A batch that nobody can decode, or damage on the
    only disk, is a ClientError; with `on_bad_batch`, that is called with the partition and the offsets, and
    reading goes on behind them.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        topic: str,
        options: ConsumerOptions,
        on_bad_batch: "Callable[[int, BadBatch], None] | None" = None,
    ) -> None:
        from confluent_kafka import Consumer
        from confluent_kafka.admin import AdminClient

        found = reach(endpoint).topics.get(topic)
        if found is None or found.error is not None:
            raise ClientError(f"topic {topic} does not exist: `penstock topic list` shows those that do")
        self._endpoint = endpoint
        self._topic = topic
        self._options = options
        self._on_bad_batch = on_bad_batch
        # By partition: where it was when it last moved, and since when; and what an error named.
        self._progress: dict[int, tuple[int, int]] = {}
        self._suspects: dict[int, int] = {}
        self._looked_at = 0
        self._partitions = sorted(found.partitions)
        self._admin: Any = opened(AdminClient, endpoint.settings())
        settings = endpoint.settings(
            group_id=options.group or "penstock-consume",
            enable_auto_commit=False,
            enable_auto_offset_store=False,
            auto_offset_reset="earliest",
            enable_partition_eof=True,
            allow_auto_create_topics=False,
            isolation_level="read_committed" if options.committed_only else "read_uncommitted",
            error_cb=self._failed,
        )
        self._consumer: Any = opened(Consumer, settings)
        self.holds: dict[int, Watermarks] = {}
        # Where each partition is read from.
        self._starts: dict[int, int] = {}
        self._ends: dict[int, int] | None = None
        self._open: dict[int, None] = {}
        self._dealt_with: dict[int, int] = {}
        self._unreachable = ""
        self._clock = MachineClock()
        self._committed_at = self._clock.now()

    def __enter__(self) -> "TopicConsumer":
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def batches(self) -> Iterator[list[ConsumedRecord]]:
        """Batches of records, the next one fetched when it is asked for.

        Raises StartOffsetOutOfRange if the position is an offset that no partition has come to.
        """
        self._check_position()
        if self._options.group is None:
            self._assign_all()
        else:
            self._consumer.subscribe([self._topic], on_assign=self._assigned, on_revoke=self._revoked)
        clock = self._clock
        heard = clock.now()
        while self._ends is None or self._open or self._options.follow:
            records = self._next()
            if records:
                heard = clock.now()
                yield records
            if self._pass_over():
                heard = clock.now()
            elif not records and not self._options.follow and clock.now() - heard > PATIENCE_SECONDS * SECOND:
                raise ClientError(f"{self._topic}: no records for {PATIENCE_SECONDS} s")

    def dealt_with(self, records: list[ConsumedRecord]) -> None:
        """Note that these records need not come again."""
        for record in records:
            self._dealt_with[record.partition] = record.offset + 1
        if self._clock.now() - self._committed_at > COMMIT_SECONDS * SECOND:
            self.commit()

    def commit(self) -> None:
        """Commit the offsets of the records that were processed."""
        from confluent_kafka import KafkaException, TopicPartition

        self._committed_at = self._clock.now()
        if self._options.group is None or not self._dealt_with:
            return
        offsets = [TopicPartition(self._topic, one, offset) for one, offset in self._dealt_with.items()]
        try:
            answers = self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            raise client_error(f"group {self._options.group}: committing", error) from None
        for one in answers or ():
            if one.error is not None:
                raise client_error(f"group {self._options.group}: committing {one.partition}", one.error)
        self._dealt_with.clear()

    def _check_position(self) -> None:
        """A start beyond every end would be moved there silently."""
        wanted = self._options.partition
        if wanted is not None and wanted not in self._partitions:
            raise ClientError(f"{self._topic} has no partition {wanted}: it has {len(self._partitions)}")
        offset = None if self._options.position is None else self._options.position.offset
        if offset is None:
            return
        marks = self._marks(self._partitions if wanted is None else [wanted])
        if marks and all(offset > mark.end for mark in marks.values()):
            raise StartOffsetOutOfRange(f"{self._topic} holds no offset {offset}: {extent(marks)}")

    def _assign_all(self) -> None:
        from confluent_kafka import TopicPartition

        wanted = self._options.partition
        partitions = self._partitions if wanted is None else [wanted]
        self._watch(partitions)
        starts = (self._options.position or BEGINNING).resolve(self._admin, self._topic, partitions)
        self._starts = {one: starts.get(one, 0) for one in partitions}
        self._consumer.assign([TopicPartition(self._topic, one, at) for one, at in self._starts.items()])

    def _assigned(self, consumer: Any, assigned: Any) -> None:
        partitions = [one.partition for one in assigned]
        self._watch(partitions)
        if self._options.position is not None:
            starts = self._options.position.resolve(self._admin, self._topic, partitions)
            for one in assigned:
                one.offset = starts.get(one.partition, 0)
            self._starts = {one.partition: one.offset for one in assigned}
        else:
            self._starts = self._committed_starts(partitions)
        self._progress.clear()
        consumer.assign(assigned)

    def _committed_starts(self, partitions: list[int]) -> dict[int, int]:
        """Where the group goes on: where it was, or at the start of what is there."""
        from confluent_kafka import KafkaException, TopicPartition

        starts = {one: mark.start for one, mark in self.holds.items()}
        try:
            committed = self._consumer.committed(
                [TopicPartition(self._topic, one) for one in partitions], timeout=REQUEST_SECONDS
            )
        except KafkaException:
            return starts
        return {**starts, **{one.partition: one.offset for one in committed if one.offset >= 0}}

    def _revoked(self, _consumer: Any, revoked: Any) -> None:
        self.commit()
        for one in revoked:
            self._open.pop(one.partition, None)

    def _watch(self, partitions: list[int]) -> None:
        """Remember where the partitions end now: a reader of a busy topic would never see them end."""
        marks = self.holds = self._marks(partitions)
        self._ends = {one: mark.end for one, mark in marks.items()}
        self._open = {one: None for one in partitions if one in marks}

    def _marks(self, partitions: list[int]) -> dict[int, Watermarks]:
        """Where the partitions begin and end. Whoever reads to the end must know all of them."""
        deadline = self._clock.now() + LEADERLESS_SECONDS * SECOND
        while True:
            marks = watermarks(self._admin, self._topic, partitions)
            missing = [one for one in partitions if one not in marks]
            if not missing or self._options.follow:
                return marks
            if self._clock.now() >= deadline:
                numbers = ", ".join(map(str, missing))
                raise ClientError(f"{self._topic}: no leader responds for partition {numbers}")
            time.sleep(TURN_SECONDS)

    def _next(self) -> list[ConsumedRecord]:
        from confluent_kafka import KafkaException

        try:
            messages = self._consumer.consume(self._options.batch_records, TURN_SECONDS)
        except KafkaException as error:
            raise client_error(self._topic, error) from None
        if self._unreachable and not self._options.follow and not messages:
            raise BrokerUnreachable(f"{self._topic}: {self._unreachable}")
        return [read for message in messages if (read := self._read(message)) is not None]

    def _read(self, message: Any) -> ConsumedRecord | None:
        error = message.error()
        if error is not None:
            if error.name() == "_PARTITION_EOF":
                self._open.pop(message.partition(), None)
                return None
            if error.name() in _BAD_RECORDS:
                self._suspects.setdefault(message.partition(), message.offset())
                return None
            raise client_error(self._topic, error)
        partition, offset = message.partition(), message.offset()
        if not self._options.follow:
            end = (self._ends or {}).get(partition, 0)
            if offset + 1 >= end:
                self._open.pop(partition, None)
            if offset >= end:
                return None
        kind, timestamp_ms = message.timestamp()
        return ConsumedRecord(
            partition,
            offset,
            timestamp_ms if kind else None,
            message.key(),
            message.value(),
            tuple(message.headers() or ()),
        )

    def _pass_over(self) -> bool:
        """Go on behind batches that nobody can decode; returns whether there was one."""
        found, now = False, self._clock.now()
        if not self._suspects and now - self._looked_at < LOOK_SECONDS * SECOND:
            return found
        self._looked_at = now
        for partition, offset in self._stuck():
            from penstock.client.bad_batch import bad_batch_at

            bad = bad_batch_at(self._endpoint, self._topic, partition, offset)
            if bad is None:
                # Whatever it waits for, it is not this.
                self._progress[partition] = (offset, self._clock.now())
                continue
            if self._on_bad_batch is None:
                raise ClientError(f"{self._topic}/{partition}: {bad.what}")
            self._on_bad_batch(partition, bad)
            self._go_on_behind(partition, bad)
            found = True
        return found

    def _stuck(self) -> list[tuple[int, int]]:
        """The partitions that bring nothing though they have something, and where."""
        from confluent_kafka import TopicPartition

        assigned = list(self._ends or ())
        suspects, self._suspects = self._suspects, {}
        now, found = self._clock.now(), []
        places = self._consumer.position([TopicPartition(self._topic, one) for one in assigned])
        for partition, place in zip(assigned, places, strict=True):
            # Below 0 while nothing has come from there.
            offset = place.offset if place.offset >= 0 else self._starts.get(partition, -1)
            moved = self._progress.get(partition)
            if moved is None or moved[0] != offset:
                self._progress[partition] = (offset, now)
                moved = (offset, now)
            if partition in suspects:
                offset = max(offset, suspects[partition])
            elif now - moved[1] < STUCK_SECONDS * SECOND or not self._has_more(partition, offset):
                continue
            if offset >= 0:
                found.append((partition, offset))
        return found

    def _has_more(self, partition: int, offset: int) -> bool:
        if not self._options.follow:
            return partition in self._open
        from confluent_kafka import TopicPartition

        _, end = self._consumer.get_watermark_offsets(TopicPartition(self._topic, partition), cached=True)
        return bool(0 <= offset < end)

    def _go_on_behind(self, partition: int, bad: "BadBatch") -> None:
        from confluent_kafka import KafkaException, TopicPartition

        self._starts[partition] = bad.end
        self._progress[partition] = (bad.end, self._clock.now())
        self._dealt_with[partition] = max(bad.end, self._dealt_with.get(partition, 0))
        if not self._options.follow and bad.end >= (self._ends or {}).get(partition, 0):
            self._open.pop(partition, None)
        try:
            self._consumer.seek(TopicPartition(self._topic, partition, bad.end))
        except KafkaException as error:
            raise client_error(self._topic, error) from None

    def _failed(self, error: Any) -> None:
        if error.name() == "_ALL_BROKERS_DOWN":
            self._unreachable = reason(error)


class PolledRecord(NamedTuple):
    """One record."""

    offset: int
    timestamp_ms: int
    is_log_append_time: bool
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class PollResult(NamedTuple):
    """Records; the end of the log, if it was reached; librdkafka's name of an error, if there was one."""

    rows: list[PolledRecord]
    log_end: int | None = None
    refusal: str | None = None


class PartitionConsumer:
    """Reads one partition from the offset that the caller sets."""

    def __init__(self, endpoint: Endpoint, *, committed_only: bool) -> None:
        from confluent_kafka import Consumer

        self.unreachable = ""
        self._hopeless = ""
        self._refusal: str | None = None
        settings = endpoint.settings(
            group_id="penstock-pipeline",
            auto_offset_reset="error",
            enable_auto_commit=False,
            enable_auto_offset_store=False,
            enable_partition_eof=True,
            allow_auto_create_topics=False,
            check_crcs=True,
            # A topic that is not there is reported at once; who reads knows how long to wait.
            topic_metadata_propagation_max_ms=0,
            isolation_level="read_committed" if committed_only else "read_uncommitted",
            error_cb=self._failed,
        )
        self._consumer: Any = opened(Consumer, settings)

    def close(self) -> None:
        self._consumer.close()

    def assign(self, topic: str, partition: int, offset: int) -> None:
        """Go on from `offset`."""
        from confluent_kafka import TopicPartition

        self._refusal = None
        self._consumer.assign([TopicPartition(topic, partition, offset)])

    def unassign(self) -> None:
        self._consumer.unassign()

    def next(self, records_max: int, seconds: float) -> PollResult:
        """What comes within `seconds`; ClientError where waiting is of no use."""
        from confluent_kafka import KafkaException

        try:
            messages = self._consumer.consume(records_max, seconds)
        except KafkaException as error:
            raise client_error("consuming", error) from None
        if self._hopeless and not messages:
            raise BrokerUnreachable(self._hopeless)
        if self._refusal is not None and not messages:
            refusal, self._refusal = self._refusal, None
            return PollResult([], refusal=refusal)
        return poll_result(messages)

    def watermarks(self, topic: str, partition: int) -> tuple[int, int] | None:
        """Where the log starts and ends now; None while nobody can say."""
        from confluent_kafka import KafkaException, TopicPartition

        try:
            start, end = self._consumer.get_watermark_offsets(
                TopicPartition(topic, partition), timeout=REQUEST_SECONDS, cached=False
            )
        except KafkaException:
            return None
        return start, end

    def _failed(self, error: Any) -> None:
        # What is wrong with a topic comes here as well, not in place of its records.
        if error.name() in _HOPELESS:
            self._hopeless = reason(error)
        elif not error.name().startswith("_"):
            self._refusal = error.name()
        self.unreachable = reason(error)


def poll_result(messages: Sequence[Any]) -> PollResult:
    """What messages amount to; those behind an error are left for whoever asks again from there."""
    rows: list[PolledRecord] = []
    log_end: int | None = None
    for message in messages:
        trouble = message.error()
        if trouble is None:
            # The log may have gone on while we waited at its end.
            rows.append(_row(message))
            log_end = None
        elif trouble.name() == "_PARTITION_EOF":
            log_end = message.offset()
        else:
            return PollResult(rows, refusal=trouble.name())
    return PollResult(rows, log_end)


def _row(message: Any) -> PolledRecord:
    kind, timestamp_ms = message.timestamp()
    return PolledRecord(
        message.offset(),
        timestamp_ms,
        kind == _LOG_APPEND_TIME,
        message.key(),
        message.value(),
        tuple(message.headers() or ()),
    )
