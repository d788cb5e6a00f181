"""What clients ask about delayed records, of any node."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from penstock.broker.coordinator.delays import DelayService
from penstock.broker.delays.peers import DelayPeers
from penstock.core.delays import (
    ANY_PARTITION,
    ID_MAX,
    NOT_PENDING,
    CancelDelays,
    DelayedRecord,
    DelayId,
    DelayList,
    DelayReply,
    DelayResults,
    ListDelays,
    NewDelay,
    PendingDelay,
    ScheduleRecords,
    read_delay_id,
    write_delay_id,
)
from penstock.core.metadata import MetadataImage
from penstock.core.metadata.configs import TopicOptions
from penstock.core.model import ApiError, ErrorKind, Timestamp
from penstock.runtime import Runtime

# Of one request.
DELAYS_MAX = 1_000
COUNT_MAX = 5_000
# How many answers of coordinators one request waits for to list delays.
LIST_STEPS_MAX = 20
TOO_MANY = ApiError(ErrorKind.INVALID_REQUEST, f"a request is about 1 to {DELAYS_MAX} records")
BAD_COUNT = ApiError(ErrorKind.INVALID_REQUEST, f"a list has 1 to {COUNT_MAX} delays")
UNKNOWN_TOPIC = ApiError(ErrorKind.UNKNOWN_TOPIC)
UNEXPECTED = ApiError(ErrorKind.COORDINATOR_NOT_AVAILABLE, "the coordinator gave no result")


class DelayRequest(NamedTuple):
    """A record to publish later; `id` -1: the broker chooses one."""

    deliver_at: Timestamp
    record: DelayedRecord
    id: int = -1


class ListedDelay(NamedTuple):
    """A pending delay under the id that clients know."""

    delay_id: str
    delay: PendingDelay


class ListedDelays(NamedTuple):
    """Some pending delays; there may be more behind `next_after`."""

    delays: tuple[ListedDelay, ...]
    next_after: str | None


R = TypeVar("R")
OnScheduled: TypeAlias = Callable[[Sequence[str | ApiError] | ApiError], None]
OnCancelled: TypeAlias = Callable[[Sequence[ApiError | None] | ApiError], None]
OnListed: TypeAlias = Callable[[ListedDelays | ApiError], None]


class _Limits(NamedTuple):
    """What a topic takes."""

    partitions: int
    record_bytes: int


class DelayView:
    """Schedules, cancels and lists delayed records, wherever their coordinators are."""

    def __init__(
        self,
        runtime: Runtime,
        delays: DelayService,
        peers: DelayPeers,
        options_of: Callable[[str], TopicOptions],
    ) -> None:
        self._entropy = runtime.entropy
        self._timers = runtime.timers
        self._delays = delays
        self._peers = peers
        self._options_of = options_of
        self._image = MetadataImage()

    def on_metadata(self, image: MetadataImage) -> None:
        self._image = image

    def schedule(self, requests: Sequence[DelayRequest], done: OnScheduled) -> None:
        """Store records to publish later; `done` gets an id or an error for each, perhaps at once."""
        if not 0 < len(requests) <= DELAYS_MAX:
            done(TOO_MANY)
            return

        def created(error: ApiError | None) -> None:
            if error is not None:
                done(error)
            else:
                self._schedule(requests, done)

        self._delays.when_created(created)

    def cancel(self, delay_ids: Sequence[str], done: OnCancelled) -> None:
        """Cancel delays; `done` gets None or an error for each, perhaps at once."""
        if not 0 < len(delay_ids) <= DELAYS_MAX:
            done(TOO_MANY)
            return
        results = _Results[None](len(delay_ids), done)
        wanted: dict[int, list[tuple[int, int]]] = {}
        for at, text in enumerate(delay_ids):
            delay_id = read_delay_id(text)
            if isinstance(delay_id, ApiError):
                results.set(at, delay_id)
            elif delay_id.partition >= self._delays.count:
                results.set(at, NOT_PENDING)
            else:
                wanted.setdefault(delay_id.partition, []).append((at, delay_id.id))
        for partition, pairs in wanted.items():
            results.expect()
            self._peers.submit(
                CancelDelays(
                    on_reply=partial(results.take, [(at, None) for at, _ in pairs]),
                    partition=partition,
                    ids=tuple(each for _, each in pairs),
                )
            )
        results.end()

    def list_pending(self, topic: str | None, count: int, after: str | None, done: OnListed) -> None:
        """List pending delays, partition by partition."""
        start = DelayId(0, -1) if after is None else read_delay_id(after)
        if isinstance(start, ApiError):
            done(start)
        elif not 0 < count <= COUNT_MAX:
            done(BAD_COUNT)
        else:
            self._list(topic, count, start, [], LIST_STEPS_MAX, done)

    def _schedule(self, requests: Sequence[DelayRequest], done: OnScheduled) -> None:
        count = self._delays.count
        results = _Results[str](len(requests), done)
        # Those of one request are together: they are stored in a few batches.
        common = self._random() % count
        wanted: dict[int, list[tuple[int, NewDelay]]] = {}
        limits: dict[str, _Limits | None] = {}
        for at, request in enumerate(requests):
            topic = request.record.topic
            if topic not in limits:
                limits[topic] = self._limits_of(topic)
            problem = _problem_with(request.record, limits[topic])
            if problem is not None:
                results.set(at, problem)
                continue
            partition = common if request.id < 0 else request.id % count
            delay_id = self._random() if request.id < 0 else request.id
            new = NewDelay(delay_id, request.deliver_at, request.record)
            wanted.setdefault(partition, []).append((at, new))
        for partition, pairs in wanted.items():
            results.expect()
            named = [(at, write_delay_id(DelayId(partition, new.id))) for at, new in pairs]
            self._peers.submit(
                ScheduleRecords(
                    on_reply=partial(results.take, named),
                    partition=partition,
                    delays=tuple(new for _, new in pairs),
                )
            )
        results.end()

    def _random(self) -> int:
        return int.from_bytes(self._entropy.bytes(8), "big") & ID_MAX

    def _limits_of(self, name: str) -> _Limits | None:
        topic = self._image.topic(name)
        if topic is None or topic.internal:
            return None
        return _Limits(len(topic.partitions), self._options_of(name).max_message_bytes)

    def _list(
        self,
        topic: str | None,
        count: int,
        start: DelayId,
        found: list[ListedDelay],
        steps: int,
        done: OnListed,
    ) -> None:
        if start.partition >= self._delays.count:
            done(ListedDelays(tuple(found), None))
            return
        if len(found) >= count or not steps:
            # An id below all of the next partition is written as the highest of the one before.
            last = start if start.id >= 0 else DelayId(max(0, start.partition - 1), ID_MAX)
            done(ListedDelays(tuple(found), write_delay_id(last)))
            return

        def replied(reply: DelayReply) -> None:
            if not isinstance(reply, DelayList):
                done(reply if isinstance(reply, ApiError) else UNEXPECTED)
                return
            found.extend(
                ListedDelay(write_delay_id(DelayId(start.partition, delay.id)), delay)
                for delay in reply.delays
            )
            if reply.last is None:
                following = DelayId(start.partition + 1, -1)
            else:
                following = DelayId(start.partition, reply.last)
            self._timers.soon(partial(self._list, topic, count, following, found, steps - 1, done))

        self._peers.submit(
            ListDelays(
                on_reply=replied,
                partition=start.partition,
                count=count - len(found),
                after=start.id,
                topic=topic,
            )
        )


def _problem_with(record: DelayedRecord, limits: _Limits | None) -> ApiError | None:
    if limits is None:
        return UNKNOWN_TOPIC
    if not ANY_PARTITION <= record.partition < limits.partitions:
        return ApiError(ErrorKind.UNKNOWN_PARTITION)
    if record.size_bytes > limits.record_bytes:
        return ApiError(ErrorKind.BATCH_TOO_LARGE, "the record is larger than its topic takes")
    return None


class _Results(Generic[R]):
    """One result for each item of a request, handed over when all of them are there."""

    def __init__(self, count: int, done: Callable[[Sequence[R | ApiError]], None]) -> None:
        self._results: list[R | ApiError] = [UNEXPECTED] * count
        self._done = done
        # One for the request itself, so that it is not done before everything was asked for.
        self._waiting = 1

    def set(self, at: int, result: ApiError) -> None:
        self._results[at] = result

    def expect(self) -> None:
        self._waiting += 1

    def take(self, named: Sequence[tuple[int, R]], reply: DelayReply) -> None:
        """The reply of one coordinator to the items at these places, and what each gets without an error."""
        errors: Sequence[ApiError | None] = ()
        if isinstance(reply, DelayResults):
            errors = reply.errors
        else:
            errors = [reply if isinstance(reply, ApiError) else UNEXPECTED] * len(named)
        for (at, result), error in zip(named, errors, strict=False):
            self._results[at] = result if error is None else error
        self.end()

    def end(self) -> None:
        self._waiting -= 1
        if not self._waiting:
            self._done(self._results)
