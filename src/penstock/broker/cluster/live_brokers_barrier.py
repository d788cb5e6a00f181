"""Waits until what this node knows to be committed counts on every live broker.

Access rules, users and API keys are decided once, and every broker judges its own clients by the image that
it has. Whoever was told that a key was made uses it at any node; whoever was told that a right was taken
away relies on it. So the client is told when all have it:

    committed here ──► AwaitMetadata(end) to every other live broker ──► all have replied ──► done
                                                                   └──► or their session is over

A broker that does not reply has no lease after a session (`broker.lease`), unless its image has caught up:
then it serves no records by what it knew before. So the wait is bounded, and the end of it means the same,
unless sessions are longer than the ten seconds that a client is kept waiting at most.

Left out: nodes that have no broker; they serve no clients.
"""

from functools import partial

from penstock.broker.cluster.controller import Controller
from penstock.broker.cluster.peers import Peer
from penstock.broker.cluster.rpc import AwaitMetadata, AwaitMetadataReply, PeerRpc, Respond, RpcReply
from penstock.core.model import MILLISECOND, Instant, NodeId
from penstock.observability import log
from penstock.runtime import Callback, Runtime

# Clients give up after half a minute.
WAIT_MS_MAX = 10_000
AGAIN_MS = 50


class LiveBrokersBarrier:
    """Asks the other brokers, and says so when they ask."""

    def __init__(self, runtime: Runtime, rpc: PeerRpc, controller: Controller, node_id: NodeId) -> None:
        self._runtime = runtime
        self._rpc = rpc
        self._controller = controller
        self._node_id = node_id
        rpc.serve(AwaitMetadata, self._on_request)

    def wait(self, done: Callback) -> None:
        """Call `done` once every live broker has what our image has now, or has no lease any more."""
        image, end = self._controller.image, self._controller.committed
        others = [broker.node_id for broker in image.live_brokers() if broker.node_id != self._node_id]
        if not others:
            done()
            return
        now = self._runtime.clock.now()
        waiting = dict.fromkeys(others)

        def settled(node: NodeId) -> None:
            if node in waiting:
                del waiting[node]
                if not waiting:
                    done()

        for node in others:
            wait_ms = min(image.session_ns(node) // MILLISECOND, WAIT_MS_MAX)
            question = _Question(node, AwaitMetadata(end), Instant(now + wait_ms * MILLISECOND))
            self._ask(question, partial(settled, node))

    def _ask(self, question: "_Question", settled: Callback) -> None:
        node, message, deadline = question.node, question.message, question.deadline
        left_ms = (deadline - self._runtime.clock.now()) // MILLISECOND
        broker = self._controller.image.broker(node)
        if left_ms <= 0 or broker is None or broker.fenced:
            if left_ms <= 0:
                log.warning("metadata.not_everywhere", broker=node, end=message.end)
            settled()
            return

        def answered(reply: RpcReply | None) -> None:
            if isinstance(reply, AwaitMetadataReply):
                settled()
            else:
                self._ask_later(question, settled)

        if not self._rpc.call(node, message, left_ms, answered):
            self._ask_later(question, settled)

    def _ask_later(self, question: "_Question", settled: Callback) -> None:
        due = min(self._runtime.clock.now() + AGAIN_MS * MILLISECOND, question.deadline)
        self._runtime.timers.at(Instant(due), partial(self._ask, question, settled))

    def _on_request(self, _peer: Peer, question: AwaitMetadata, respond: Respond) -> None:
        self._controller.when_committed(question.end, lambda: respond(AwaitMetadataReply()))


class _Question:
    """What a broker is asked, and until when."""

    __slots__ = ("deadline", "message", "node")

    def __init__(self, node: NodeId, message: AwaitMetadata, deadline: Instant) -> None:
        self.node = node
        self.message = message
        self.deadline = deadline
