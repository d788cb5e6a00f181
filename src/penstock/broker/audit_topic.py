"""The topic `__audit`: entries of every node's audit log, for those who collect them elsewhere.

    AuditLog ── batches ─▶ queue ── one at a time ─▶ append, if this node leads the partition
                                                 └─▶ AppendAudit to the node that does

The topic is made with the first entry. It has one partition, so that entries are read in the order in which
they were stored, and a retention that can be changed as that of any topic. Nothing waits for it: the queue is
bounded, and when it is full its oldest batch is dropped. A batch whose fate is not known is sent again, so
that an entry may be there twice.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeAlias

from penstock.broker.cluster import Controller, PeerRpc
from penstock.broker.cluster.peers import Peer
from penstock.broker.cluster.rpc import AppendAudit, AppendAuditReply, Respond, RpcReply
from penstock.broker.partitions import ReplicaManager
from penstock.broker.produce import LEADER_ACKS, PendingProduce, ProduceService, Results
from penstock.broker.topics import TopicService
from penstock.core.metadata import AUDIT_TOPIC, NO_LEADER
from penstock.core.metadata.levels import ACCESS_LEVEL, METADATA_VERSION
from penstock.core.model import MILLISECOND, ApiError, Instant, NodeId
from penstock.observability import log as events
from penstock.runtime import Runtime

PARTITION = 0
BATCHES_MAX = 16
APPEND_TIMEOUT_MS = 5_000
RETRY_MS = 1_000
# What a node takes of another one.
BATCH_BYTES_MAX = 1 << 20
OnAppended: TypeAlias = Callable[[str | None], None]


class AuditTopic:
    """Appends entries to `__audit`, wherever its leader is, and takes those of other nodes."""

    def __init__(
        self,
        runtime: Runtime,
        controller: Controller,
        partitions: ReplicaManager,
        rpc: PeerRpc,
        node_id: NodeId,
    ) -> None:
        self._runtime = runtime
        self._controller = controller
        self._partitions = partitions
        self._rpc = rpc
        self._node_id = node_id
        self._topics: TopicService | None = None
        self._produce: ProduceService | None = None
        self._queue: deque[tuple[bytearray, int]] = deque()
        self._is_busy = False
        self._is_failing = False
        rpc.serve(AppendAudit, self._on_append)

    def serve(self, topics: TopicService, produce: ProduceService) -> None:
        """Have these create the topic and append to it; before, batches wait."""
        self._topics, self._produce = topics, produce
        self._go_on()

    def append(self, batches: Sequence[tuple[bytearray, int]]) -> int:
        """Queue batches, each with the number of its entries; returns how many entries gave way."""
        self._queue.extend(batches)
        lost = 0
        while len(self._queue) > BATCHES_MAX:
            # The first one may be on its way.
            _, count = self._queue[1]
            del self._queue[1]
            lost += count
        self._go_on()
        return lost

    def _go_on(self) -> None:
        if self._is_busy or not self._queue or self._topics is None:
            return
        self._is_busy = True
        image = self._controller.image
        if image.feature_level(METADATA_VERSION) < ACCESS_LEVEL:
            self._failed("the cluster's metadata.version is too low: penstock cluster upgrade")
            return
        place = image.partition(AUDIT_TOPIC, PARTITION)
        if place is None:
            self._topics.auto_create(AUDIT_TOPIC, self._created)
        elif place.leader == self._node_id:
            self._append_here(bytearray(self._queue[0][0]), self._appended)
        elif place.leader == NO_LEADER or not self._rpc.call(
            place.leader, AppendAudit(bytes(self._queue[0][0])), APPEND_TIMEOUT_MS, self._answered
        ):
            self._failed("the topic has no leader that can be reached")

    def _created(self, reply: object) -> None:
        if isinstance(reply, ApiError):
            self._failed(str(reply))
        else:
            self._is_busy = False
            self._go_on()

    def _append_here(self, batch: bytearray, done: OnAppended) -> None:
        """Append a batch to the partition that this node leads; `done` gets the error, if there is one."""
        partition = self._partitions.find(AUDIT_TOPIC, PARTITION)
        if partition is None or self._produce is None:
            done("this node does not lead the topic")
            return

        def produced(results: Results) -> None:
            (result,) = results
            done(str(result) if isinstance(result, ApiError) else None)

        now = self._runtime.clock.now()
        request = PendingProduce(LEADER_ACKS, APPEND_TIMEOUT_MS, now, produced, _ignore, _ignore)
        self._produce.produce(request, [(partition, memoryview(batch))])

    def _appended(self, error: str | None) -> None:
        if error is not None:
            self._failed(error)
            return
        self._queue.popleft()
        self._is_busy = self._is_failing = False
        # Not at once: a batch after the other would not leave the loop to anybody.
        self._runtime.timers.soon(self._go_on)

    def _answered(self, reply: RpcReply | None) -> None:
        self._appended(reply.problem if isinstance(reply, AppendAuditReply) else "no answer")

    def _failed(self, reason: str) -> None:
        """Try again in a while; what comes meanwhile is queued."""
        if not self._is_failing:
            self._is_failing = True
            events.warning("audit.topic_not_written", topic=AUDIT_TOPIC, reason=reason)

        def retry() -> None:
            self._is_busy = False
            self._go_on()

        self._runtime.timers.at(Instant(self._runtime.clock.now() + RETRY_MS * MILLISECOND), retry)

    def _on_append(self, _peer: Peer, question: AppendAudit, respond: Respond) -> None:
        if len(question.batch) > BATCH_BYTES_MAX:
            respond(AppendAuditReply("the batch is too large"))
            return
        self._append_here(bytearray(question.batch), lambda error: respond(AppendAuditReply(error)))


def _ignore() -> None:
    """Do nothing: no client is read from, or not."""
