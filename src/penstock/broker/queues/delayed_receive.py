"""One request for records of several queues: the answer has those of the first queue that has any.

    DelayedReceive ── await ──► RecordsWait at each leader ── a queue may have records ──┐
          ▲                                                                              ▼
          └─ nothing ──────────────── receive, without waiting ◄── one queue after the other

Waiting leases nothing, and one queue is asked at a time: so no more is leased than was asked for, and a
consumer that has gone gets nothing. A lease that comes too late all the same, because the consumer went while
its queue was asked, is given back as if it had not been.

Which queue is asked first goes round, so that a busy one does not keep the others waiting.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from penstock.broker.queues.leader_queue import LeaderQueue
from penstock.broker.queues.peers import (
    NO_LEADER_HERE,
    OnReady,
    OnReceived,
    ReadyQueues,
    ReceivedRecords,
    ReceiveRequest,
)
from penstock.core.model import MILLISECOND, ApiError, ErrorKind, Instant, NodeId
from penstock.core.queues import QueueId
from penstock.core.values import dataclass
from penstock.runtime import Callback, Runtime, Timer

# After an error, when to ask again.
RETRY_MS = 200
# How long the last queue that is asked may take, after the time is up.
LAST_MS = 5_000
# Queues in one turn of the loop: they may all reply at once.
ASKED_PER_TURN = 50
# Errors that a consumer which waits need not see.
TRANSIENT = (
    ErrorKind.NOT_LEADER,
    ErrorKind.COORDINATOR_LOADING,
    ErrorKind.COORDINATOR_NOT_AVAILABLE,
    ErrorKind.NOT_COORDINATOR,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupReceiveRequest:
    """What a consumer wants of any of its group's queues."""

    queues: tuple[QueueId, ...]
    consumer: str
    records_max: int
    bytes_max: int = 1 << 20
    wait_ms: int = 0
    lease_ms: int | None = None


class ReceivePeers(Protocol):
    """The leaders of queues, wherever they are."""

    def leader_of(self, queue: QueueId) -> NodeId | ApiError: ...

    def await_records(
        self, leader: NodeId, queues: Sequence[QueueId], wait_ms: int, done: OnReady
    ) -> Callback: ...

    def receive(self, request: ReceiveRequest, done: OnReceived) -> None: ...

    def records_ready(self, queue: QueueId) -> None: ...


class RecordsWait:
    """Waits for records of any of the queues that this node leads, without leasing them."""

    def __init__(self, runtime: Runtime, queues: Sequence[LeaderQueue], wait_ms: int, done: OnReady) -> None:
        self._done: OnReady | None = done
        self._queues = queues
        deadline = Instant(runtime.clock.now() + wait_ms * MILLISECOND)
        self._timer = runtime.timers.at(deadline, self._time_is_up)
        ready = tuple(queue.queue for queue in queues if queue.watch(self))
        if ready:
            self._finish(ReadyQueues(ready))

    def records_ready(self, queue: QueueId) -> bool:
        return self._finish(ReadyQueues((queue,), is_news=True))

    def cancel(self) -> None:
        self._done = None
        self._timer.cancel()
        for queue in self._queues:
            queue.unwatch(self)

    def _time_is_up(self) -> None:
        self._finish(ReadyQueues())

    def _finish(self, ready: ReadyQueues) -> bool:
        done = self._done
        if done is None:
            return False
        self.cancel()
        done(ready)
        return True


class DelayedReceive:
    """Asks queues until one has records, or the time is up."""

    def __init__(
        self,
        runtime: Runtime,
        peers: ReceivePeers,
        request: GroupReceiveRequest,
        give_back: Callable[[QueueId, ReceivedRecords], None],
        done: Callable[[QueueId, ReceivedRecords | ApiError], None],
    ) -> None:
        self._timers = runtime.timers
        self._clock = runtime.clock
        self._peers = peers
        self._request = request
        self._give_back = give_back
        self._done: Callable[[QueueId, ReceivedRecords | ApiError], None] | None = done
        self._deadline = Instant(self._clock.now() + request.wait_ms * MILLISECOND)
        self._to_ask: dict[QueueId, None] = {}
        self._asked: QueueId | None = None
        # Told of by an edge that nobody else saw: to be handed on if it is not asked.
        self._news: dict[QueueId, None] = {}
        self._waits: dict[NodeId, Callback] = {}
        self._retry: Timer | None = None
        self._is_time_up = False
        self._is_turning = False
        # What to reply if nothing comes.
        self._empty: tuple[QueueId, ReceivedRecords] | None = None
        self._error: tuple[QueueId, ApiError] | None = None
        self._timer = self._timers.at(self._deadline, self._time_is_up)

    def start(self) -> None:
        """Ask, or wait; `done` may be called at once."""
        if len(self._request.queues) == 1 or not self._request.wait_ms:
            self._to_ask.update(dict.fromkeys(self._request.queues))
        self._turn()

    def cancel(self) -> None:
        """Nobody waits for the reply any more."""
        if self._done is not None:
            self._end()

    def _turn(self) -> None:
        """Ask the next queue, or wait for one. A loop, because replies may come at once."""
        if self._is_turning:
            return
        self._is_turning = True
        asked = 0
        while self._done is not None and self._asked is None and self._to_ask and asked < ASKED_PER_TURN:
            queue = next(iter(self._to_ask))
            del self._to_ask[queue]
            self._ask(queue)
            asked += 1
        if self._done is not None and self._to_ask and self._asked is None:
            # The rest in another turn of the loop.
            self._timers.soon(self._turn)
        elif self._done is not None and self._asked is None:
            if self._is_time_up or not self._request.wait_ms:
                self._reply_empty()
            else:
                self._await()
        self._is_turning = False

    def _ask(self, queue: QueueId) -> None:
        self._asked = queue
        request = self._request
        self._peers.receive(
            ReceiveRequest(
                queue=queue,
                consumer=request.consumer,
                records_max=request.records_max,
                bytes_max=request.bytes_max,
                lease_ms=request.lease_ms,
            ),
            partial(self._received, queue),
        )

    def _received(self, queue: QueueId, reply: ReceivedRecords | ApiError) -> None:
        self._asked = None
        self._news.pop(queue, None)
        if self._done is None:
            if isinstance(reply, ReceivedRecords) and reply.slices:
                self._give_back(queue, reply)
            return
        if isinstance(reply, ApiError):
            self._error = self._error or (queue, reply)
            if reply.kind not in TRANSIENT:
                self._finish(queue, reply)
                return
            self._retry_later()
        elif reply.slices:
            self._finish(queue, reply)
            return
        elif self._empty is None or reply.is_paused:
            self._empty = queue, reply
        self._turn()

    def _await(self) -> None:
        """Wait at every leader where nothing is waited for; where there is none, try again later."""
        if self._retry is not None:
            return
        by_leader: dict[NodeId, list[QueueId]] = {}
        for queue in self._request.queues:
            leader = self._peers.leader_of(queue)
            if not isinstance(leader, ApiError):
                by_leader.setdefault(leader, []).append(queue)
            elif leader.kind in TRANSIENT:
                self._error = self._error or (queue, leader)
                self._retry_later()
            else:
                self._finish(queue, leader)
                return
        left_ms = max(1, (self._deadline - self._clock.now()) // MILLISECOND)
        for leader, queues in by_leader.items():
            if leader not in self._waits and self._done is not None:
                told: list[ReadyQueues | None] = []
                cancel = self._peers.await_records(leader, queues, left_ms, partial(self._told, leader, told))
                if not told:
                    self._waits[leader] = cancel

    def _told(self, leader: NodeId, told: list[ReadyQueues | None], ready: ReadyQueues | None) -> None:
        told.append(ready)
        self._waits.pop(leader, None)
        if self._done is None:
            return
        if ready is None or not ready.queues:
            # The leader was not there, or knows of nothing; the time may be almost up.
            self._error = self._error or (self._request.queues[0], NO_LEADER_HERE)
            self._retry_later()
            return
        for queue in ready.queues:
            self._to_ask[queue] = None
            if ready.is_news:
                self._news[queue] = None
        # Not now: this may be the middle of a step of the leader, or of `_await`.
        self._timers.soon(self._turn)

    def _retry_later(self) -> None:
        if self._retry is None:
            at = Instant(self._clock.now() + RETRY_MS * MILLISECOND)
            self._retry = self._timers.at(at, self._retry_now)

    def _retry_now(self) -> None:
        self._retry = None
        self._turn()

    def _time_is_up(self) -> None:
        if self._done is None:
            return
        if self._is_time_up:
            self._reply_empty()
            return
        self._is_time_up = True
        self._timer = self._timers.at(Instant(self._clock.now() + LAST_MS * MILLISECOND), self._time_is_up)
        if self._empty is None and not self._to_ask and self._asked is None:
            # No queue has said anything so far: one is asked, so that there is something to say.
            self._to_ask[self._request.queues[0]] = None
        self._turn()

    def _reply_empty(self) -> None:
        if self._empty is not None:
            self._finish(*self._empty)
        elif self._error is not None:
            self._finish(*self._error)
        else:
            self._finish(self._request.queues[0], NO_LEADER_HERE)

    def _finish(self, queue: QueueId, reply: ReceivedRecords | ApiError) -> None:
        done = self._done
        if done is not None:
            self._end()
            done(queue, reply)

    def _end(self) -> None:
        self._done = None
        self._timer.cancel()
        if self._retry is not None:
            self._retry.cancel()
        waits, self._waits = self._waits, {}
        for cancel in waits.values():
            cancel()
        news, self._news = self._news, {}
        for queue in news:
            if queue != self._asked:
                self._peers.records_ready(queue)
