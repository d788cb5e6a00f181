"""Ids for idempotent producers, from blocks that the controller allocated to this broker."""

from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from penstock.broker.cluster import Controller
from penstock.core.metadata import AllocateProducerIds, ProducerIdBlock, Reply
from penstock.core.model import ApiError, BrokerEpoch, NodeId, ProducerId

OnProducerId: TypeAlias = Callable[[ProducerId | ApiError], None]


class ProducerIdManager:
    """Hands out producer ids, none twice. The rest of a block is lost in a crash, not reused."""

    def __init__(self, controller: Controller, node_id: NodeId, broker_epoch: BrokerEpoch) -> None:
        self._controller = controller
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._next = 0
        self._end = 0
        self._waiting: deque[OnProducerId] = deque()
        self._asking = False

    def next(self, given: OnProducerId) -> None:
        """Call `given` with the next id: inside this call while the block lasts, otherwise later."""
        if self._next < self._end and not self._waiting:
            given(self._take())
            return
        self._waiting.append(given)
        self._ask()

    def _take(self) -> ProducerId:
        taken = ProducerId(self._next)
        self._next += 1
        return taken

    def _ask(self) -> None:
        if not self._asking:
            self._asking = True
            command = AllocateProducerIds(self._node_id, self._broker_epoch)
            self._controller.submit(command, self._allocated)

    def _allocated(self, reply: Reply) -> None:
        self._asking = False
        if isinstance(reply, ApiError):
            waiting, self._waiting = self._waiting, deque()
            for given in waiting:
                given(reply)
            return
        assert isinstance(reply, ProducerIdBlock)
        self._next, self._end = reply.start, reply.start + reply.count
        while self._waiting and self._next < self._end:
            self._waiting.popleft()(self._take())
        if self._waiting:
            self._ask()
