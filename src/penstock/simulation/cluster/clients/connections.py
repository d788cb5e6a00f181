"""How a client reaches a node: requests and answers in order, or not at all.

A client has a host of its own on the simulated network, so that a partition can stand between
it and some of the nodes. Its connections are TCP's in what they do to requests: nothing is
doubled or overtaken on one connection, and what meets a cut is sent again for a few seconds,
even if the client has given up meanwhile. A request may therefore arrive long after its sender
has asked somebody else.
"""

import enum
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from penstock.core.model import MILLISECOND
from penstock.runtime import Callback
from penstock.simulation.cluster.door import Answer, Door
from penstock.simulation.life import Life
from penstock.simulation.network import Network
from penstock.simulation.node import SimulatedNode

FIRST_RETRY_NS = 200 * MILLISECOND
RETRIES_MAX = 3


class Lost(enum.Enum):
    """No answer will come. Whether the request was carried out is anybody's guess."""

    LOST = "lost"


Request: TypeAlias = Callable[[Door, Answer], None]
Answered: TypeAlias = Callable[[Any], None]


class Reachable(Protocol):
    """A node as its clients see it: a machine, and its door once it is open."""

    machine: SimulatedNode

    @property
    def door(self) -> Door | None: ...


class _Way:
    """One direction of a connection."""

    __slots__ = ("_held", "_last_arrival", "_network", "_source", "_target", "_tries", "is_dead")

    def __init__(self, network: Network, source: str, target: str) -> None:
        self._network = network
        self._source = source
        self._target = target
        self._held: deque[Callback] = deque()
        self._last_arrival = 0
        self._tries = 0
        self.is_dead = False

    def carry(self, arrive: Callback) -> None:
        scheduler = self._network.scheduler
        arrival = max(scheduler.now + self._network.delay(), self._last_arrival)
        self._last_arrival = arrival
        scheduler.at(arrival, self._arrive, arrive)

    def _arrive(self, arrive: Callback) -> None:
        if self.is_dead:
            return
        if not self._held and not self._network.is_cut(self._source, self._target):
            arrive()
            return
        self._held.append(arrive)
        if len(self._held) == 1:
            self._tries = 0
            self._network.scheduler.after(FIRST_RETRY_NS, self._again)

    def _again(self) -> None:
        if not self._network.is_cut(self._source, self._target):
            while self._held:
                self._held.popleft()()
        elif self._tries == RETRIES_MAX:
            self.is_dead = True
            self._held.clear()
        else:
            self._tries += 1
            self._network.scheduler.after(FIRST_RETRY_NS << self._tries, self._again)


class Connection:
    """One client's connection to one life of a node."""

    __slots__ = ("_back", "_life", "_network", "_node", "_open", "_out", "is_over")

    def __init__(self, network: Network, host: str, node: Reachable) -> None:
        name = node.machine.name
        self._network = network
        self._node = node
        self._out = _Way(network, host, name)
        self._back = _Way(network, name, host)
        self._life: Life | None = None
        # What is not answered yet, by number.
        self._open: dict[object, Answered] = {}
        self.is_over = False

    def ask(self, request: Request, answered: Answered) -> object:
        """Send a request; `answered` is called once, unless the client closes the connection first."""
        call = object()
        self._open[call] = answered
        self._out.carry(lambda: self._reach(call, request))
        return call

    def _reach(self, call: object, request: Request) -> None:
        life = self._node.machine.life
        if self._network.is_dark(self._node.machine.name):
            return  # there is nobody to say so
        if self._life is None:
            self._life = life
        if life is None or life is not self._life or not life.alive or self._node.door is None:
            self.reset()
        else:
            life.deliver("call", 0, self._serve, call, request)

    def _serve(self, call: object, request: Request) -> None:
        door = self._node.door
        if door is None:
            self.reset()  # it has stopped listening meanwhile
            return

        def answer(reply: Any) -> None:
            self._back.carry(lambda: self._end(call, reply))

        request(door, answer)

    def _end(self, call: object, reply: Any) -> None:
        answered = self._open.pop(call, None)
        if answered is not None:
            answered(reply)

    def give_up(self, call: object) -> None:
        """The client has no more patience: if the call is still open, it hangs up."""
        if call in self._open:
            self.close()

    def reset(self) -> None:
        """The node's end is gone, and its machine says so."""
        self._back.carry(self.close)

    def process_ended(self, host: str) -> None:
        """The kernel of that machine closes its connections."""
        if self._life is not None and host == self._node.machine.name:
            self.reset()

    def close(self) -> None:
        """Expect nothing more: everybody who waits is told that the answer is lost."""
        self.is_over = True
        waiting, self._open = self._open, {}
        for answered in waiting.values():
            answered(Lost.LOST)
