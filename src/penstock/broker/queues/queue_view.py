"""The queue view of topics: what servers ask for, on whichever node they are.

`receive` leases records of one queue and returns them with receipts; `receive_any` those of one of several
queues (`delayed_receive`). `submit` is for everything else about a queue: to
acknowledge, release, reject or renew what was received, to describe, pause or forget a queue.

A new queue begins at the start of its partition's log, or at its end (`queue.start`).
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

from penstock.broker.partitions import LeaderPartition
from penstock.broker.queues.delayed_receive import DelayedReceive, GroupReceiveRequest, RecordsWait
from penstock.broker.queues.leader_queue import LeaderQueue, LeaderQueueContext
from penstock.broker.queues.peers import (
    NO_LEADER_HERE,
    OnReady,
    OnReceived,
    QueuePeers,
    ReadyQueues,
    ReceivedRecords,
    ReceiveRequest,
)
from penstock.broker.queues.record_reader import RecordReader
from penstock.core.metadata import ConfigResourceType, MetadataImage
from penstock.core.model import ApiError, ErrorKind, PartitionIndex, TopicId
from penstock.core.queues import (
    ATTEMPTS_MAX,
    REDRIVE_GROUP,
    ClaimCommand,
    ClaimResults,
    LeaseClaim,
    OfferRecords,
    OnReply,
    OpenQueue,
    QueueCommand,
    QueueId,
    QueueOk,
    QueueReply,
    QueueSettings,
    ReturnRecords,
    read_receipts,
)
from penstock.runtime import Callback, Runtime
from penstock.runtime.sliced_work import SlicedWork, Slices

WAIT_MS_MAX = 60_000
# How many queues get other settings in a slice, which takes about a millisecond.
CHANGED_AT_ONCE = 32
# A redrive that fails leaves a dead letter where it is, however often.
REDRIVE_SETTINGS = QueueSettings(deliveries_max=ATTEMPTS_MAX)
BAD_REQUEST = ApiError(ErrorKind.INVALID_REQUEST, "only the partition's leader offers records")


class LeaderPartitions(Protocol):
    """The partitions that this node leads."""

    def find(self, topic: str, index: int) -> LeaderPartition | None: ...


class DeadLetterMoves(Protocol):
    """Moves what queues have given up."""

    def move(self, queue: QueueId, partition: LeaderPartition) -> None: ...


class QueueGroupSettings(Protocol):
    """The configuration of groups."""

    def __call__(self, group_id: str) -> QueueSettings: ...

    def starts_at_end(self, group_id: str) -> bool: ...


class QueueView:
    """Receives records of queues, and settles them."""

    def __init__(
        self,
        runtime: Runtime,
        partitions: LeaderPartitions,
        peers: QueuePeers,
        reader: RecordReader,
        moves: DeadLetterMoves,
        settings_of: QueueGroupSettings,
    ) -> None:
        self._runtime = runtime
        self._work = SlicedWork(runtime.clock.now, runtime.timers.soon)
        self._partitions = partitions
        self._peers = peers
        self._moves = moves
        self._settings_of = settings_of
        self._context = LeaderQueueContext(peers, reader, runtime, self._closed, settings_of.starts_at_end)
        self._image = MetadataImage()
        # Those that somebody consumes from, of partitions that this node leads.
        self._led: dict[QueueId, LeaderQueue] = {}
        self._led_by_group: dict[str, dict[QueueId, None]] = {}
        # Those whose settings may have changed.
        self._outdated: dict[QueueId, None] = {}
        # Which queue is asked first, of those that a consumer names.
        self._turn = 0

    def on_metadata(self, image: MetadataImage) -> None:
        """Call it after that of the groups' settings."""
        before, self._image = self._image.configs, image
        if image.configs is before:
            return
        changed = image.configs.keys_changed_since(before) + before.keys_missing_in(image.configs)
        is_underway = bool(self._outdated)
        if any(resource.kind is ConfigResourceType.BROKER for resource in changed):
            self._outdated = dict.fromkeys(self._led)
        else:
            for resource in changed:
                if resource.kind is ConfigResourceType.GROUP:
                    self._outdated.update(self._led_by_group.get(resource.name, {}))
        if self._outdated and not is_underway:
            self._work.run(self._change_settings())

    def _change_settings(self) -> Slices:
        number = 0
        while self._outdated:
            queue = next(iter(self._outdated))
            del self._outdated[queue]
            led = self._led.get(queue)
            if led is not None:
                led.change_settings(self._settings_for(queue))
            number += 1
            if number % CHANGED_AT_ONCE == 0:
                yield

    def _settings_for(self, queue: QueueId) -> QueueSettings:
        return REDRIVE_SETTINGS if queue.group_id == REDRIVE_GROUP else self._settings_of(queue.group_id)

    def receive(self, request: ReceiveRequest, done: OnReceived) -> None:
        """Lease records of one queue; `done` is called once, perhaps at once."""
        if not 0 <= request.wait_ms <= WAIT_MS_MAX:
            done(ApiError(ErrorKind.INVALID_REQUEST, f"a request waits for 0 to {WAIT_MS_MAX} ms"))
        else:
            self._peers.receive(request, done)

    def receive_any(
        self,
        request: GroupReceiveRequest,
        done: Callable[[QueueId, ReceivedRecords | ApiError], None],
    ) -> Callback:
        """Lease records of one of several queues; `done` is called once, perhaps at once.

        What is returned ends the wait: `done` is not called then, and nothing is leased.
        """
        assert request.queues
        first = self._turn % len(request.queues)
        self._turn += 1
        turned = request.queues[first:] + request.queues[:first]
        request = replace(request, queues=turned)
        delayed = DelayedReceive(self._runtime, self._peers, request, self._give_back, done)
        delayed.start()
        return delayed.cancel

    def _give_back(self, queue: QueueId, received: ReceivedRecords) -> None:
        claims = claims_by_queue(queue.group_id, [each.receipt for each in received.records])
        assert not isinstance(claims, ApiError)
        self.submit(ReturnRecords(on_reply=lambda _: None, queue=queue, claims=claims[queue]))

    def submit(self, command: QueueCommand, transactional_id: str | None = None) -> None:
        """Have the queue's coordinator decide; the command's callback gets the reply, perhaps at once."""
        if isinstance(command, OpenQueue | OfferRecords):
            command.on_reply(BAD_REQUEST)
        else:
            self._peers.submit(command, transactional_id)

    def settle(
        self,
        claimed: Sequence[tuple[QueueId, LeaseClaim] | ApiError],
        command_of: Callable[[OnReply, QueueId, tuple[LeaseClaim, ...]], ClaimCommand],
        done: Callable[[list[ApiError | None]], None],
        *,
        transactional_id: str | None = None,
    ) -> None:
        """Have the coordinators decide on what was received; `done` gets one entry per record.

        Each queue decides by itself: some may grant what they were asked for while others are not available.
        """
        results: list[ApiError | None] = []
        places: dict[QueueId, list[int]] = {}
        claims: dict[QueueId, list[LeaseClaim]] = {}
        for each in claimed:
            if isinstance(each, ApiError):
                results.append(each)
                continue
            queue, claim = each
            places.setdefault(queue, []).append(len(results))
            claims.setdefault(queue, []).append(claim)
            results += [None] * claim.records
        # One for this call, so that nothing is returned before everything was asked.
        left = len(claims) + 1

        def replied(queue: QueueId | None, reply: QueueReply) -> None:
            nonlocal left
            left -= 1
            if queue is not None and not (isinstance(reply, ClaimResults) and not any(reply.errors)):
                _put_errors(results, reply, places[queue], claims[queue])
            if not left:
                done(results)

        for queue, its in claims.items():
            self.submit(command_of(partial(replied, queue), queue, tuple(its)), transactional_id)
        replied(None, QueueOk())

    def lease_ms(self, group_id: str) -> int:
        """How long leases of the group's queues last, unless a consumer asks for another time."""
        return self._settings_of(group_id).lease_ms

    def jitter(self) -> int:
        """A random number for `ReleaseRecords`."""
        return int.from_bytes(self._runtime.entropy.bytes(8), "big")

    def stop(self) -> None:
        """Whoever waits is told to look elsewhere."""
        for led in list(self._led.values()):
            led.close(NO_LEADER_HERE)

    def receive_here(self, request: ReceiveRequest, done: OnReceived) -> None:
        """Lease records of a queue whose data partition this node leads."""
        led = self._lead(request.queue)
        if led is None:
            done(NO_LEADER_HERE)
        else:
            led.receive(request, done)

    def await_records_here(self, queues: Sequence[QueueId], wait_ms: int, done: OnReady) -> Callback:
        """Wait until one of these may have records, of those whose data partitions this node leads."""
        led = [self._lead(queue) for queue in queues]
        lost = tuple(queue for queue, found in zip(queues, led, strict=True) if found is None)
        if lost:
            # Whoever asks is told.
            done(ReadyQueues(lost))
            return lambda: None
        return RecordsWait(self._runtime, [each for each in led if each is not None], wait_ms, done).cancel

    def _lead(self, queue: QueueId) -> LeaderQueue | None:
        partition = self.partition_of(queue)
        if partition is None:
            return None
        led = self._led.get(queue)
        if led is not None and led.partition is not partition:
            led.close(NO_LEADER_HERE)
            led = None
        if led is None:
            led = LeaderQueue(queue, partition, self._settings_for(queue), self._context)
            self._led[queue] = led
            self._led_by_group.setdefault(queue.group_id, {})[queue] = None
        return led

    def records_ready_here(self, queue: QueueId) -> None:
        """The queue's coordinator has ready records."""
        led = self._led.get(queue)
        if led is not None:
            led.wake()

    def dead_letters_due_here(self, queue: QueueId) -> None:
        """The queue's coordinator has records to move."""
        partition = self.partition_of(queue)
        if partition is not None:
            self._moves.move(queue, partition)

    def partition_of(self, queue: QueueId) -> LeaderPartition | None:
        """The queue's data partition, if this node leads it."""
        topic = self._image.topic_by_id(queue.topic_id)
        found = None if topic is None else self._partitions.find(topic.name, queue.partition)
        is_led = found is not None and found.topic_id == queue.topic_id and found.stopped is None
        return found if is_led else None

    def _closed(self, led: LeaderQueue) -> None:
        if self._led.get(led.queue) is led:
            del self._led[led.queue]
            its_group = self._led_by_group[led.queue.group_id]
            del its_group[led.queue]
            if not its_group:
                del self._led_by_group[led.queue.group_id]


def _put_errors(
    results: list[ApiError | None], reply: QueueReply, places: Sequence[int], claims: Sequence[LeaseClaim]
) -> None:
    """Say at their places what became of claims."""
    number = 0
    for place, claim in zip(places, claims, strict=True):
        for index in range(place, place + claim.records):
            if isinstance(reply, ClaimResults):
                kind = reply.errors[number]
                results[index] = None if kind is None else ApiError(kind)
            else:
                assert isinstance(reply, ApiError), reply
                results[index] = reply
            number += 1


def claims_of(group_id: str, receipts: Sequence[str]) -> list[tuple[QueueId, LeaseClaim] | ApiError]:
    """The claim of each receipt, and the queue to send it to; an error if it is no receipt."""
    queues: dict[tuple[TopicId, PartitionIndex], QueueId] = {}
    found: list[tuple[QueueId, LeaseClaim] | ApiError] = []
    for receipt in read_receipts(receipts):
        if isinstance(receipt, ApiError):
            found.append(receipt)
            continue
        topic_id, partition, offset, attempt, token = receipt
        queue = queues.get((topic_id, partition))
        if queue is None:
            queue = queues[topic_id, partition] = QueueId(group_id, topic_id, partition)
        found.append((queue, LeaseClaim(offset, attempt, token)))
    return found


def claims_by_queue(
    group_id: str, receipts: Sequence[str]
) -> dict[QueueId, tuple[LeaseClaim, ...]] | ApiError:
    """The claims of a consumer by the queue to send them to; an error if one of them is no receipt."""
    found: dict[QueueId, list[LeaseClaim]] = {}
    for each in claims_of(group_id, receipts):
        if isinstance(each, ApiError):
            return each
        queue, claim = each
        found.setdefault(queue, []).append(claim)
    return {queue: tuple(claims) for queue, claims in found.items()}
