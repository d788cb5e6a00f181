"""Questions and answers on the control channel."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias, TypeVar

from penstock.core.model import MILLISECOND, Instant, NodeId, ProtocolError
from penstock.observability import log as events
from penstock.runtime import CloseReason, Runtime, Timer
from penstock.services.cluster.control.codec import Parcel, decode_parcel, encode_parcel
from penstock.services.cluster.control.messages import Answer, Message, Question
from penstock.services.peering import Channel, LaxWatcher, Peer, PeerHub

# None: lost on the way there, over there, or on the way back.
Answered: TypeAlias = Callable[[Answer | None], None]
Respond: TypeAlias = Callable[[Answer], None]
Q = TypeVar("Q", bound=Message)
# Questions of one node that we remember to have heard.
HEARD_MAX = 1_000


class Asked(NamedTuple):
    """A question that is underway."""

    node: NodeId
    done: Answered
    timer: Timer


class ControlDesk(LaxWatcher):
    """Asks other nodes, and hands their questions to whoever answers them."""

    def __init__(self, runtime: Runtime, hub: PeerHub) -> None:
        self._runtime = runtime
        self._hub = hub
        self._clerks: dict[type[Any], Callable[[Peer, Any, Respond], None]] = {}
        self._asked: dict[int, Asked] = {}
        # No two lives of a node number their questions alike.
        self._number = int.from_bytes(runtime.entropy.bytes(5), "little") << 24
        self._heard: dict[NodeId, OrderedDict[int, None]] = {}
        hub.serve(Channel.CONTROL, self)
        hub.watch(self)

    def serve(self, kind: type[Q], clerk: Callable[[Peer, Q, Respond], None]) -> None:
        """Let `clerk` answer questions of this kind, now or later, once or never."""
        assert kind not in self._clerks
        self._clerks[kind] = clerk

    def ask(self, node: NodeId, question: Question, timeout_ms: int, done: Answered) -> bool:
        """Ask a node. False: not sent, and `done` will not be called; True: it will be, exactly once."""
        self._number += 1
        number = self._number
        if not self._hub.send(Channel.CONTROL, node, encode_parcel(Parcel(False, number, question))):
            return False
        deadline = Instant(self._runtime.clock.now() + timeout_ms * MILLISECOND)
        timer = self._runtime.timers.at(deadline, lambda: self._settle(number, None))
        self._asked[number] = Asked(node, done, timer)
        return True

    def _settle(self, number: int, answer: Answer | None) -> None:
        asked = self._asked.pop(number, None)
        if asked is not None:
            asked.timer.cancel()
            asked.done(answer)

    def received(self, peer: Peer, frame: memoryview) -> None:
        try:
            parcel = decode_parcel(frame)
        except ProtocolError as wrong:
            events.warning("control.bad_message", peer=peer.node_id, reason=str(wrong))
            return
        if not parcel.is_answer:
            self._answer(peer, parcel)
            return
        asked = self._asked.get(parcel.number)
        if asked is not None and asked.node == peer.node_id:
            self._settle(parcel.number, parcel.message)  # type: ignore[arg-type]  # an answer, says its head

    def _answer(self, peer: Peer, parcel: Parcel) -> None:
        clerk = self._clerks.get(type(parcel.message))
        if clerk is None or not self._is_news(peer.node_id, parcel.number):
            return
        number = parcel.number

        def respond(answer: Answer) -> None:
            peer.send(encode_parcel(Parcel(True, number, answer)))

        clerk(peer, parcel.message, respond)

    def _is_news(self, node: NodeId, number: int) -> bool:
        heard = self._heard.setdefault(node, OrderedDict())
        if number in heard:
            return False
        heard[number] = None
        if len(heard) > HEARD_MAX:
            heard.popitem(last=False)
        return True

    def lost(self, node: NodeId, _ending: CloseReason) -> None:
        """No answer comes on a link that is over."""
        for number in [number for number, asked in self._asked.items() if asked.node == node]:
            self._settle(number, None)
