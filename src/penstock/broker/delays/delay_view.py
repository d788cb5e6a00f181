"""What clients ask about delayed records, of any node."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from penstock.broker.coordinator.delays import DelayService
from penstock.broker.delays.peers import DelayPeers
from penstock.core.delays import (
    ANY_PARTITION,
    ID_BYTES,
    ID_MAX,
    NOT_PENDING,
    CancelDelays,
    DelayedRecords,
    DelayId,
    DelayList,
    DelayReply,
    DelayResults,
    DelayTopics,
    FindDelays,
    ListDelays,
    PendingDelay,
    ScheduleRecords,
    choose_ids,
    read_delay_id,
    slot_at,
    write_delay_id,
    write_delay_ids,
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
UNKNOWN_PARTITION = ApiError(ErrorKind.UNKNOWN_PARTITION)
TOO_LARGE = ApiError(ErrorKind.BATCH_TOO_LARGE, "the record is larger than its topic takes")
UNEXPECTED = ApiError(ErrorKind.COORDINATOR_NOT_AVAILABLE, "the coordinator gave no result")


class DelayRequest(NamedTuple):
    """A record to publish later: `body` is its key, value and headers (see `core.records.builder`).

    `partition` -1: where its key belongs. `id` -1: the broker chooses one.
    """

    topic: str
    deliver_at: Timestamp
    body: bytes
    partition: int = ANY_PARTITION
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
# Whether somebody may publish to a topic.
MayWrite: TypeAlias = Callable[[str], bool]
OnListed: TypeAlias = Callable[[ListedDelays | ApiError], None]


class _TopicRoom(NamedTuple):
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
        self._clock = runtime.clock
        self._first_slot = runtime.entropy.bytes(1)[0]
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

    def cancel(self, delay_ids: Sequence[str], done: OnCancelled, may_write: MayWrite | None = None) -> None:
        """Cancel delays; `done` gets None or an error for each, perhaps at once.

        With `may_write` their topics are asked for first: what is for others is as if it were not there.
        """
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
            places, ids = [at for at, _ in pairs], tuple(each for _, each in pairs)
            if may_write is None:
                self._cancel(partition, ids, (), places, results)
            else:
                self._cancel_some(partition, ids, may_write, places, results)
        results.end()

    def _cancel(
        self,
        partition: int,
        ids: tuple[int, ...],
        topics: tuple[str, ...],
        places: Sequence[int],
        results: "_Results[None]",
    ) -> None:
        on_reply = partial(results.take, places, [None] * len(ids))
        self._peers.submit(CancelDelays(on_reply=on_reply, partition=partition, ids=ids, topics=topics))

    def _cancel_some(
        self,
        partition: int,
        ids: tuple[int, ...],
        may_write: MayWrite,
        places: Sequence[int],
        results: "_Results[None]",
    ) -> None:
        """Cancel those whose topics may be written to."""

        def found(reply: DelayReply) -> None:
            if not isinstance(reply, DelayTopics) or len(reply.topics) != len(ids):
                results.take(places, [None] * len(ids), reply)
                return
            allowed = {topic: may_write(topic) for topic in dict.fromkeys(reply.topics) if topic is not None}
            chosen: list[tuple[int, int, str]] = []
            for at, delay_id, topic in zip(places, ids, reply.topics, strict=True):
                if topic is not None and allowed[topic]:
                    chosen.append((at, delay_id, topic))
                else:
                    results.set(at, NOT_PENDING)
            if not chosen:
                results.end()
                return
            # With the topics: an id may have been cancelled and used again meanwhile.
            mine, mine_ids, mine_topics = zip(*chosen, strict=True)
            self._cancel(partition, mine_ids, mine_topics, mine, results)

        self._peers.submit(FindDelays(on_reply=found, partition=partition, ids=ids))

    def list_pending(
        self,
        topic: str | None,
        count: int,
        after: str | None,
        done: OnListed,
        may_write: MayWrite | None = None,
    ) -> None:
        """List pending delays, partition by partition; with `may_write` those of its topics alone."""
        start = DelayId(0, -1) if after is None else read_delay_id(after)
        if isinstance(start, ApiError):
            done(start)
        elif not 0 < count <= COUNT_MAX:
            done(BAD_COUNT)
        elif topic is not None and may_write is not None and not may_write(topic):
            done(ListedDelays((), None))
        else:
            self._list(_Listing(topic, count, may_write, done), start)

    def _schedule(self, requests: Sequence[DelayRequest], done: OnScheduled) -> None:
        results = _Results[str](len(requests), done)
        requests = self._with_ids(requests)
        limits = {
            topic: self._limits_of(topic) for topic in dict.fromkeys([request.topic for request in requests])
        }
        for partition, by_topic in _grouped(requests, self._delays.count).items():
            records: list[DelayedRecords] = []
            places: list[int] = []
            for topic, ats in by_topic.items():
                sound = _sound(requests, ats, limits[topic], results)
                if sound:
                    records.append(_records_of(topic, [requests[at] for at in sound]))
                    places += sound
            if records:
                ids = [each for part in records for each in part.ids]
                results.expect()
                self._peers.submit(
                    ScheduleRecords(
                        on_reply=partial(results.take, places, write_delay_ids(partition, ids)),
                        partition=partition,
                        records=tuple(records),
                    )
                )
        results.end()

    def _with_ids(self, requests: Sequence[DelayRequest]) -> Sequence[DelayRequest]:
        """The requests with ids for those that have none."""
        nameless = [at for at, request in enumerate(requests) if request.id < 0]
        if not nameless:
            return requests
        named = list(requests)
        entropy = self._entropy.bytes(ID_BYTES * len(nameless))
        ids = choose_ids(entropy, slot_at(self._first_slot, self._clock.wall()))
        for at, chosen in zip(nameless, ids, strict=True):
            named[at] = requests[at]._replace(id=chosen)
        return named

    def _limits_of(self, name: str) -> _TopicRoom | None:
        topic = self._image.topic(name)
        if topic is None or topic.internal:
            return None
        return _TopicRoom(len(topic.partitions), self._options_of(name).max_message_bytes)

    def _list(self, listing: "_Listing", start: DelayId) -> None:
        if start.partition >= self._delays.count:
            listing.end(None)
            return
        if not listing.steps:
            # An id below all of the next partition is written as the highest of the one before.
            listing.end(start if start.id >= 0 else DelayId(max(0, start.partition - 1), ID_MAX))
            return
        listing.steps -= 1

        def replied(reply: DelayReply) -> None:
            if not isinstance(reply, DelayList):
                listing.done(reply if isinstance(reply, ApiError) else UNEXPECTED)
                return
            last = listing.add(start.partition, reply.delays)
            if last is not None:
                listing.end(last)
                return
            if reply.last is None:
                following = DelayId(start.partition + 1, -1)
            else:
                following = DelayId(start.partition, reply.last)
            self._timers.soon(partial(self._list, listing, following))

        self._peers.submit(
            ListDelays(
                on_reply=replied,
                partition=start.partition,
                count=listing.wanted,
                after=start.id,
                topic=listing.topic,
            )
        )


class _Listing:
    """What is found for one request to list delays.

    What may not be seen is passed over by large steps, so that hardly ever a list ends at such an id.
    """

    __slots__ = ("_count", "_found", "_has_hidden", "_may_write", "done", "steps", "topic")

    def __init__(self, topic: str | None, count: int, may_write: MayWrite | None, done: OnListed) -> None:
        self.topic = topic
        self.done = done
        self.steps = LIST_STEPS_MAX
        self._count = count
        self._may_write = may_write
        self._found: list[ListedDelay] = []
        self._has_hidden = False

    @property
    def wanted(self) -> int:
        """How many the next coordinator is asked for."""
        return COUNT_MAX if self._has_hidden else self._count - len(self._found)

    def add(self, partition: int, delays: Sequence[PendingDelay]) -> DelayId | None:
        """Take those that may be seen; the last one, once there are enough."""
        may_write = self._may_write
        topics = dict.fromkeys(delay.topic for delay in delays)
        shown = topics if may_write is None else {topic: None for topic in topics if may_write(topic)}
        for delay in delays:
            if delay.topic not in shown:
                self._has_hidden = True
                continue
            delay_id = DelayId(partition, delay.id)
            self._found.append(ListedDelay(write_delay_id(delay_id), delay))
            if len(self._found) == self._count:
                return delay_id
        return None

    def end(self, last: DelayId | None) -> None:
        """Hand over what was found; there may be more behind `last`."""
        self.done(ListedDelays(tuple(self._found), None if last is None else write_delay_id(last)))


def _grouped(requests: Sequence[DelayRequest], count: int) -> dict[int, dict[str, list[int]]]:
    """Where in the request they are, by partition of `__delayed` and topic: nearly always in one group."""
    keys = [(request.id % count, request.topic) for request in requests]
    if keys.count(keys[0]) == len(keys):
        return {keys[0][0]: {keys[0][1]: list(range(len(keys)))}}
    found: dict[int, dict[str, list[int]]] = {}
    for at, (partition, topic) in enumerate(keys):
        found.setdefault(partition, {}).setdefault(topic, []).append(at)
    return found


def _sound(
    requests: Sequence[DelayRequest], ats: list[int], limits: _TopicRoom | None, results: "_Results[str]"
) -> list[int]:
    """Those that their topic takes; the others get their error."""
    if limits is None:
        for at in ats:
            results.set(at, UNKNOWN_TOPIC)
        return []
    sound: list[int] = []
    partitions, bytes_max = limits
    for at in ats:
        _, _, body, partition, _ = requests[at]
        if not ANY_PARTITION <= partition < partitions:
            results.set(at, UNKNOWN_PARTITION)
        elif len(body) > bytes_max:
            results.set(at, TOO_LARGE)
        else:
            sound.append(at)
    return sound


def _records_of(topic: str, requests: list[DelayRequest]) -> DelayedRecords:
    _, times, bodies, partitions, ids = zip(*requests, strict=True)
    return DelayedRecords(
        topic, ids, times, partitions, tuple(accumulate(map(len, bodies))), b"".join(bodies)
    )


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

    def take(self, places: Sequence[int], named: Sequence[R], reply: DelayReply) -> None:
        """The reply of one coordinator to the items at these places, and what each gets without an error."""
        errors: Sequence[ApiError | None] = ()
        if isinstance(reply, DelayResults):
            errors = reply.errors
        else:
            errors = [reply if isinstance(reply, ApiError) else UNEXPECTED] * len(places)
        for at, result, error in zip(places, named, errors, strict=False):
            self._results[at] = result if error is None else error
        self.end()

    def end(self) -> None:
        self._waiting -= 1
        if not self._waiting:
            self._done(self._results)
