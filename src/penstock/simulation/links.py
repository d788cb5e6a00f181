"""The two ends of a simulated link, the doors they start from, and a node's transport."""

import enum
import zlib
from collections import deque
from uuid import UUID

from penstock.runtime import Address, AddressUnavailable, Buffer, CloseReason, LinkHandler, NodeIdentity
from penstock.runtime.peer_handshake import Hello, read_greeting, same_cluster, write_hello
from penstock.simulation.life import Life
from penstock.simulation.network import Network


class Stage(enum.Enum):
    """How far a link has come."""

    CALLING = enum.auto()
    OPEN = enum.auto()
    CLOSED = enum.auto()


class SimulatedLink:
    """One end of a link; it belongs to one life of its node."""

    __slots__ = (
        "_far",
        "_handler",
        "_inbox",
        "_network",
        "_paused",
        "_stage",
        "_turned_away",
        "bytes_in_flight",
        "far_host",
        "host",
        "identity",
        "last_arrival",
        "life",
    )

    def __init__(
        self, network: Network, life: Life, handler: LinkHandler, identity: NodeIdentity, far_host: str
    ) -> None:
        self._network = network
        self._handler = handler
        self._far: SimulatedLink | None = None
        self._stage = Stage.CALLING
        self._inbox: deque[bytes] = deque()
        self._paused = False
        self._turned_away = False
        self.life = life
        self.identity = identity
        self.host = life.name
        self.far_host = far_host
        self.bytes_in_flight = 0  # on the way to this end, or waiting at it
        self.last_arrival = 0

    def send(self, *parts: Buffer) -> bool:
        far = self._far
        if self._stage is not Stage.OPEN or far is None:
            return False
        if far.bytes_in_flight >= self._network.link_bytes_max:
            self._turned_away = True
            return False
        frame = parts[0] if len(parts) == 1 and isinstance(parts[0], bytes) else b"".join(parts)
        assert frame, "a frame of impossible size"
        far.bytes_in_flight += len(frame)
        self._network.carry(far, frame)
        return True

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        if self._paused:
            self._paused = False
            self.life.later(0, "resumed", 0, self._hand_over)

    def close(self) -> None:
        self._tell_far()
        self.end(CloseReason.OURS)

    def is_answered_by(self, far: "SimulatedLink", arrival: int) -> bool:
        """A door answers this call; frames will come behind the answer. False: the caller is gone."""
        if self._stage is Stage.CLOSED:
            return False
        self._far = far
        self.last_arrival = arrival
        return True

    def opens(self, far: "SimulatedLink") -> None:
        """Both ends have shaken hands, as far as this end knows."""
        if self._stage is Stage.CALLING:
            self._far = far
            self._stage = Stage.OPEN
            greeting = read_greeting(write_hello(Hello(far.identity)))
            assert isinstance(greeting, Hello)
            self._handler.opened(self, greeting.identity)

    def give_up(self) -> None:
        """The time to connect is over."""
        if self._stage is Stage.CALLING:
            self.end(CloseReason.UNREACHABLE)

    def end(self, ending: CloseReason) -> None:
        """The link is over at this end; the node is told soon."""
        if self._stage is Stage.CLOSED:
            return
        if ending is CloseReason.SILENT:
            self._tell_far()
        self._stage = Stage.CLOSED
        self._network.part(self)
        self._inbox.clear()
        self.life.later(0, "closed", ending.name, self._handler.closed, self, ending)

    def vanish(self, *, silently: bool) -> None:
        """The node at this end died."""
        if silently and self._far is not None:
            far = self._far
            self._network.scheduler.after(self._network.idle_timeout_ns, far.end, CloseReason.SILENT)
        else:
            self._tell_far()
        self._stage = Stage.CLOSED
        self._network.part(self)

    def _tell_far(self) -> None:
        if self._stage is not Stage.CLOSED and self._far is not None:
            self._network.carry_end(self._far)

    def arrive(self, frame: bytes) -> None:
        """A frame reached this machine."""
        if self._network.is_cut(self.far_host, self.host):
            self.miss(frame)
        elif not self.life.alive:
            self.miss(frame)
            self._turn_away()
        else:
            self.life.deliver("frame", zlib.crc32(frame), self._received, frame)

    def _turn_away(self) -> None:
        """A machine that is up again knows nothing of its connections of before, and says so."""
        if self._far is not None and not self._network.is_dark(self.host):
            self._network.carry_end(self._far)

    def miss(self, frame: bytes) -> None:
        """A frame got lost."""
        self._release(frame)

    def _received(self, frame: bytes) -> None:
        if self._stage is not Stage.OPEN:
            return
        if self._paused or self._inbox:
            self._inbox.append(frame)
            return
        self._release(frame)
        self._handler.received(self, frame)

    def _hand_over(self) -> None:
        while self._inbox and not self._paused and self._stage is Stage.OPEN:
            frame = self._inbox.popleft()
            self._release(frame)
            self._handler.received(self, frame)

    def _release(self, frame: bytes) -> None:
        """Room for more: tell a sender that was turned away."""
        self.bytes_in_flight -= len(frame)
        far = self._far
        if far is not None and far._turned_away and self.bytes_in_flight <= self._network.link_bytes_max // 2:
            far._turned_away = False
            far.life.later(self._network.delay(), "drained", 0, far._drained)

    def _drained(self) -> None:
        if self._stage is Stage.OPEN:
            self._handler.drained(self)


class SimulatedDoor:
    """Where a node listens."""

    def __init__(
        self,
        network: Network,
        life: Life,
        address: Address,
        handler: LinkHandler,
        owner: "SimulatedTransport",
    ):
        self._network = network
        self._handler = handler
        self._owner = owner
        self.life = life
        self._address = address

    @property
    def address(self) -> Address:
        return self._address

    def close(self) -> None:
        self._network.shut_door(self)

    def welcome(self, caller: SimulatedLink) -> None:
        """Shake hands with a caller, and tell it after the way back."""
        network = self._network
        back_ns = network.delay()
        ours = self._owner.identity
        if same_cluster(ours)(Hello(caller.identity)) is not None:
            network.scheduler.after(back_ns, caller.end, CloseReason.REJECTED)
            return
        link = SimulatedLink(network, self.life, self._handler, ours, caller.host)
        network.join(link)
        if not caller.is_answered_by(link, network.scheduler.now + back_ns):
            network.scheduler.after(back_ns, link.end, CloseReason.ENDED)
        elif network.is_cut(self.life.name, caller.host):
            network.scheduler.after(network.idle_timeout_ns, link.end, CloseReason.SILENT)
        else:
            caller.life.later(back_ns, "answered", self.life.name, caller.opens, link)
        link.opens(caller)


class SimulatedTransport:
    """The transport port of one life of a node."""

    def __init__(self, network: Network, life: Life, identity: NodeIdentity) -> None:
        self._network = network
        self._life = life
        self.identity = identity

    def join_cluster(self, cluster_id: UUID) -> None:
        self.identity = self.identity._replace(cluster_id=cluster_id)

    def listen(self, address: Address, handler: LinkHandler) -> SimulatedDoor:
        if not address.port:
            address = address._replace(port=self._network.free_port())
        door = SimulatedDoor(self._network, self._life, address, handler, self)
        if address.host != self._life.name or not self._network.open_door(door):
            raise AddressUnavailable(f"cannot listen on {address}")
        return door

    def connect(self, address: Address, handler: LinkHandler) -> SimulatedLink:
        link = SimulatedLink(self._network, self._life, handler, self.identity, address.host)
        self._network.call(link, address)
        return link
