"""Sends the markers of ended transactions to the leaders of their partitions, until all have them.

Markers that are ready in one turn of the loop go to each node in one request. What a leader does not take
(it is not the leader any more, too few replicas are in sync, it cannot be reached) is sent again after a
pause, or when the metadata changes, to whoever leads by then. A marker that is there already changes nothing.

A partition needs no marker

* when its topic is gone: unknown for longer than the metadata of this node may lag behind,
* when it knows a later epoch of the producer: that was given out after all markers had been written.

A coordinator that meets a newer one goes on until the metadata has told this node of it: markers of an old
epoch are refused, and only who is not the coordinator any more may leave a transaction prepared.
"""

from collections.abc import Callable, Iterator

from penstock.broker.transactions.markers import MarkerResults, TransactionMarker
from penstock.broker.transactions.peers import TransactionPeers
from penstock.core.metadata import NO_LEADER, MetadataImage
from penstock.core.model import MILLISECOND, ApiError, ErrorKind, Instant, NodeId, TopicPartition
from penstock.observability import CounterValue
from penstock.observability import log as events
from penstock.runtime import Runtime, Timer

RETRY_MS, RETRY_MS_MAX = 20, 1_000
# Nodes hear of new topics one after the other, within a session of a broker.
UNKNOWN_TOPIC_MS = 5_000
# So that a request fits into a frame, and the leader is not busy with it for long.
PARTITIONS_PER_REQUEST_MAX = 2_000


class _Unsent:
    """A marker, and the partitions that do not have it yet."""

    __slots__ = ("done", "is_current", "is_fenced", "marker", "partitions", "retry_ms", "since", "waiting")

    def __init__(
        self,
        marker: TransactionMarker,
        is_current: Callable[[], bool],
        done: Callable[[bool], None],
        since: Instant,
    ) -> None:
        self.marker = marker
        self.is_current = is_current
        self.done = done
        self.partitions = dict.fromkeys(marker.partitions)
        self.retry_ms = RETRY_MS
        self.since = since
        # A partition has a marker of a newer coordinator.
        self.is_fenced = False
        # Requests without a reply.
        self.waiting = 0


class LeaderMarkerSender:
    """The `MarkerSender` of a node: finds leaders in the metadata, and reaches them through the peers."""

    def __init__(self, runtime: Runtime, peers: TransactionPeers, retries: CounterValue) -> None:
        self._timers = runtime.timers
        self._clock = runtime.clock
        self._peers = peers
        self._retries = retries
        self._image = MetadataImage()
        self._ready: list[_Unsent] = []
        self._paused: dict[_Unsent, Timer] = {}

    def on_metadata(self, image: MetadataImage) -> None:
        """Leaders may have changed: what waits for its next turn is sent to them now."""
        self._image = image
        paused, self._paused = self._paused, {}
        for unsent, timer in paused.items():
            timer.cancel()
            self._enqueue(unsent)

    def send(
        self, marker: TransactionMarker, is_current: Callable[[], bool], done: Callable[[bool], None]
    ) -> None:
        """Send until every partition has the marker (True), or until it is not current any more (False)."""
        self._enqueue(_Unsent(marker, is_current, done, self._clock.now()))

    def _enqueue(self, unsent: _Unsent) -> None:
        if not self._ready:
            self._timers.soon(self._send)
        self._ready.append(unsent)

    def _send(self) -> None:
        ready, self._ready = self._ready, []
        by_node: dict[NodeId, list[tuple[_Unsent, TransactionMarker]]] = {}
        for unsent in ready:
            # One for this turn, so that it is not done before everything was sent.
            unsent.waiting = 1
            if unsent.is_current():
                for node, portion in self._by_leader(unsent):
                    unsent.waiting += 1
                    by_node.setdefault(node, []).append((unsent, unsent.marker._replace(partitions=portion)))
        for node, rows in by_node.items():
            for portion_of_rows in _portions(rows):
                self._request(node, portion_of_rows)
        for unsent in ready:
            self._answered(unsent)

    def _by_leader(self, unsent: _Unsent) -> Iterator[tuple[NodeId, tuple[TopicPartition, ...]]]:
        found: dict[NodeId, list[TopicPartition]] = {}
        for partition in list(unsent.partitions):
            placed = self._image.partition(*partition)
            if placed is None:
                if self._clock.now() - unsent.since >= UNKNOWN_TOPIC_MS * MILLISECOND:
                    del unsent.partitions[partition]
            elif placed.leader != NO_LEADER:
                found.setdefault(placed.leader, []).append(partition)
        for node, partitions in found.items():
            for at in range(0, len(partitions), PARTITIONS_PER_REQUEST_MAX):
                yield node, tuple(partitions[at : at + PARTITIONS_PER_REQUEST_MAX])

    def _request(self, node: NodeId, rows: list[tuple[_Unsent, TransactionMarker]]) -> None:
        def done(results: MarkerResults) -> None:
            for (unsent, _), errors in zip(rows, results, strict=True):
                for partition, error in errors.items():
                    self._take(unsent, partition, error)
                self._answered(unsent)

        self._peers.write_markers(node, [marker for _, marker in rows], done)

    def _take(self, unsent: _Unsent, partition: TopicPartition, error: ApiError | None) -> None:
        if error is None or error.kind is ErrorKind.PRODUCER_FENCED:
            unsent.partitions.pop(partition, None)
            return
        self._retries.count += 1
        if error.kind is ErrorKind.STALE_COORDINATOR and not unsent.is_fenced:
            # This node is about to hear of its successor. Or the epoch came with a marker that was written
            # by hand: then nobody else sends this one.
            unsent.is_fenced = True
            events.warning("transaction.coordinator_fenced", partition=str(partition))

    def _answered(self, unsent: _Unsent) -> None:
        unsent.waiting -= 1
        if unsent.waiting:
            return
        if not unsent.partitions:
            unsent.done(True)
            return
        if not unsent.is_current():
            unsent.done(False)
            return
        at = Instant(self._clock.now() + unsent.retry_ms * MILLISECOND)
        unsent.retry_ms = min(2 * unsent.retry_ms, RETRY_MS_MAX)
        self._paused[unsent] = self._timers.at(at, lambda: self._resume(unsent))

    def _resume(self, unsent: _Unsent) -> None:
        del self._paused[unsent]
        self._enqueue(unsent)


def _portions(
    rows: list[tuple[_Unsent, TransactionMarker]],
) -> list[list[tuple[_Unsent, TransactionMarker]]]:
    """The rows of one node in requests that are not too large."""
    portions: list[list[tuple[_Unsent, TransactionMarker]]] = []
    size = PARTITIONS_PER_REQUEST_MAX
    for row in rows:
        size += len(row[1].partitions)
        if size > PARTITIONS_PER_REQUEST_MAX:
            portions.append([])
            size = len(row[1].partitions)
        portions[-1].append(row)
    return portions
