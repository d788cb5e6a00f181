"""The network between simulated nodes: delay, loss, reordering, duplicates, cuts and refusals.

Links are worse than TCP on purpose, exactly as bad as the runtime port's contract allows:
frames may vanish or overtake each other on a link that stays open.
"""

import enum
import random
import zlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from penstock.core.model import MICROSECOND, MILLISECOND, SECOND
from penstock.runtime import Address, AddressUnavailable, Buffer, CloseReason, LinkHandler, NodeIdentity
from penstock.runtime.peer_handshake import Hello, read_greeting, same_cluster, write_hello
from penstock.sim.incarnation import Incarnation
from penstock.sim.scheduler import Scheduler
from penstock.sim.trace import Trace

_MOST_BYTES_IN_FLIGHT = 1024 * 1024


@dataclass(frozen=True, slots=True)
class NetworkFaults:
    """How well frames travel just now; the rates are per frame and add up to at most one."""

    delay_min_ns: int = 50 * MICROSECOND
    delay_max_ns: int = 2 * MILLISECOND
    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0


FAIR = NetworkFaults()


class SimulatedNetwork:
    """All machines, listeners and links of a world, by host name."""

    connect_timeout_ns = 2 * SECOND
    idle_timeout_ns = 10 * SECOND
    link_bytes_max = _MOST_BYTES_IN_FLIGHT

    def __init__(self, scheduler: Scheduler, luck: random.Random, trace: Trace) -> None:
        self.scheduler = scheduler
        self.random = luck
        self.trace = trace
        self.network_faults = FAIR
        self._doors: dict[Address, SimulatedListener] = {}
        self._dark: dict[str, None] = {}  # machines without power
        self._cuts: dict[tuple[str, str], object] = {}
        self._links: dict[SimulatedLink, None] = {}
        self._next_port = 40_000
        self._watchers: list[Callable[[str], None]] = []

    def when_process_ends(self, watcher: Callable[[str], None]) -> None:
        """Call `watcher` with the host whenever a process ends on a machine that runs on."""
        self._watchers.append(watcher)

    def is_dark(self, host: str) -> bool:
        """Whether there is not even a kernel that could respond."""
        return host in self._dark

    def delay(self) -> int:
        weather = self.network_faults
        span = weather.delay_max_ns - weather.delay_min_ns
        return weather.delay_min_ns + int(self.random.random() * span)

    def free_port(self) -> int:
        self._next_port += 1
        return self._next_port

    def open_door(self, door: "SimulatedListener") -> bool:
        if door.address in self._doors:
            return False
        self._doors[door.address] = door
        return True

    def shut_door(self, door: "SimulatedListener") -> None:
        if self._doors.get(door.address) is door:
            del self._doors[door.address]

    def is_cut(self, source: str, target: str) -> bool:
        return bool(self._cuts) and (source, target) in self._cuts

    def cut(self, source: str, target: str) -> None:
        """Let nothing through from `source` to `target`; the other direction is a cut of its own."""
        token = object()
        self._cuts[source, target] = token
        self.scheduler.after(self.idle_timeout_ns, self._fall_silent, source, target, token)

    def heal(self, source: str, target: str) -> None:
        self._cuts.pop((source, target), None)

    def heal_all(self) -> None:
        self._cuts.clear()

    def _fall_silent(self, source: str, target: str, token: object) -> None:
        """A cut has lasted for the idle timeout: the side that receives nothing gives up."""
        if self._cuts.get((source, target)) is not token:
            return
        for link in list(self._links):
            if link.host == target and link.far_host == source:
                link.end(CloseReason.SILENT)

    def disconnect(self, host: str, *, power_lost: bool) -> None:
        """A node died. Its kernel closes the connections, unless the kernel is gone as well."""
        for address in [address for address in self._doors if address.host == host]:
            del self._doors[address]
        if power_lost:
            self._dark[host] = None
        for link in [link for link in self._links if link.host == host]:
            link.vanish(silently=power_lost)
        for watcher in self._watchers if not power_lost else ():
            watcher(host)

    def reconnect(self, host: str) -> None:
        self._dark.pop(host, None)

    def join(self, link: "SimulatedLink") -> None:
        self._links[link] = None

    def part(self, link: "SimulatedLink") -> None:
        self._links.pop(link, None)

    def call(self, link: "SimulatedLink", address: Address) -> None:
        """Carry a caller's request to the listener at `address`."""
        self.join(link)
        link.incarnation.later(self.connect_timeout_ns, "overdue", 0, link.give_up)
        self.scheduler.after(self.delay(), self._knock, link, address)

    def _knock(self, link: "SimulatedLink", address: Address) -> None:
        if address.host in self._dark or self.is_cut(link.host, address.host):
            return  # no response; the caller times out
        door = self._doors.get(address)
        if door is not None:
            door.incarnation.deliver("call", link.host, door.accept, link)
        elif not self.is_cut(address.host, link.host):
            self.scheduler.after(self.delay(), link.end, CloseReason.REFUSED)

    def carry(self, target: "SimulatedLink", frame: bytes) -> None:
        """Send a frame on its way to the other end of a link."""
        weather = self.network_faults
        luck = self.random.random()
        arrival = self.scheduler.now + self.delay()
        if luck < weather.reorder:
            self.scheduler.at(arrival, target.arrive, frame)
            return
        arrival = target.last_arrival = max(arrival, target.last_arrival)
        luck -= weather.reorder
        if luck < weather.loss:
            self.scheduler.at(arrival, target.miss, frame)
            return
        self.scheduler.at(arrival, target.arrive, frame)
        if luck - weather.loss < weather.duplicate:
            target.bytes_in_flight += len(frame)
            self.scheduler.at(arrival + self.delay(), target.arrive, frame)

    def carry_end(self, target: "SimulatedLink") -> None:
        """Notify the other end that its link is closed, or let it time out."""
        if self.is_cut(target.far_host, target.host):
            self.scheduler.after(self.idle_timeout_ns, target.end, CloseReason.SILENT)
        else:
            arrival = max(self.scheduler.now + self.delay(), target.last_arrival)
            self.scheduler.at(arrival, target.end, CloseReason.ENDED)


class SimulatedLinkState(enum.Enum):
    """How far a link has come."""

    CALLING = enum.auto()
    OPEN = enum.auto()
    CLOSED = enum.auto()


class SimulatedLink:
    """One end of a link; it belongs to one incarnation of its node."""

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
        "incarnation",
        "last_arrival",
    )

    def __init__(
        self,
        network: SimulatedNetwork,
        life: Incarnation,
        handler: LinkHandler,
        identity: NodeIdentity,
        far_host: str,
    ) -> None:
        self._network = network
        self._handler = handler
        self._far: SimulatedLink | None = None
        self._stage = SimulatedLinkState.CALLING
        self._inbox: deque[bytes] = deque()
        self._paused = False
        self._turned_away = False
        self.incarnation = life
        self.identity = identity
        self.host = life.name
        self.far_host = far_host
        self.bytes_in_flight = 0  # on the way to this end, or waiting at it
        self.last_arrival = 0

    def send(self, *parts: Buffer) -> bool:
        far = self._far
        if self._stage is not SimulatedLinkState.OPEN or far is None:
            return False
        if far.bytes_in_flight >= self._network.link_bytes_max:
            self._turned_away = True
            return False
        frame = parts[0] if len(parts) == 1 and isinstance(parts[0], bytes) else b"".join(parts)
        assert frame, "a frame of impossible size"
        far.bytes_in_flight += len(frame)
        self._network.carry(far, frame)
        return True

    @property
    def is_receiving(self) -> bool:
        """Frames come whole here."""
        return False

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        if self._paused:
            self._paused = False
            self.incarnation.later_on(0, self, "resumed", 0, self._hand_over)

    def close(self) -> None:
        self._tell_far()
        self.end(CloseReason.OURS)

    def is_answered_by(self, far: "SimulatedLink", arrival: int) -> bool:
        """A listener accepts this connection; frames follow. False: the caller is gone."""
        if self._stage is SimulatedLinkState.CLOSED:
            return False
        self._far = far
        self.last_arrival = arrival
        return True

    def opens(self, far: "SimulatedLink") -> None:
        """Both ends have shaken hands, as far as this end knows."""
        if self._stage is SimulatedLinkState.CALLING:
            self._far = far
            self._stage = SimulatedLinkState.OPEN
            greeting = read_greeting(write_hello(Hello(far.identity)))
            assert isinstance(greeting, Hello)
            self._handler.opened(self, greeting.identity)

    def give_up(self) -> None:
        """The connect timeout is over."""
        if self._stage is SimulatedLinkState.CALLING:
            self.end(CloseReason.UNREACHABLE)

    def end(self, ending: CloseReason) -> None:
        """The link is closed at this end; the node is notified soon."""
        if self._stage is SimulatedLinkState.CLOSED:
            return
        if ending is CloseReason.SILENT:
            self._tell_far()
        self._stage = SimulatedLinkState.CLOSED
        self._network.part(self)
        self._inbox.clear()
        self.incarnation.later_on(0, self, "closed", ending.name, self._handler.closed, self, ending)

    def vanish(self, *, silently: bool) -> None:
        """The node at this end died."""
        if silently and self._far is not None:
            far = self._far
            self._network.scheduler.after(self._network.idle_timeout_ns, far.end, CloseReason.SILENT)
        else:
            self._tell_far()
        self._stage = SimulatedLinkState.CLOSED
        self._network.part(self)

    def _tell_far(self) -> None:
        if self._stage is not SimulatedLinkState.CLOSED and self._far is not None:
            self._network.carry_end(self._far)

    def arrive(self, frame: bytes) -> None:
        """A frame reached this machine."""
        if self._network.is_cut(self.far_host, self.host):
            self.miss(frame)
        elif not self.incarnation.alive:
            self.miss(frame)
            self._turn_away()
        else:
            self.incarnation.deliver_on(self, "frame", zlib.crc32(frame), self._received, frame)

    def _turn_away(self) -> None:
        """A machine that is up again knows nothing of its connections of before, and says so."""
        if self._far is not None and not self._network.is_dark(self.host):
            self._network.carry_end(self._far)

    def miss(self, frame: bytes) -> None:
        """A frame got lost."""
        self._release(frame)

    def _received(self, frame: bytes) -> None:
        if self._stage is not SimulatedLinkState.OPEN:
            return
        if self._paused or self._inbox:
            self._inbox.append(frame)
            return
        self._release(frame)
        self._handler.received(self, frame)

    def _hand_over(self) -> None:
        while self._inbox and not self._paused and self._stage is SimulatedLinkState.OPEN:
            frame = self._inbox.popleft()
            self._release(frame)
            self._handler.received(self, frame)

    def _release(self, frame: bytes) -> None:
        """Room for more: notify a sender whose frame was rejected."""
        self.bytes_in_flight -= len(frame)
        far = self._far
        if far is not None and far._turned_away and self.bytes_in_flight <= self._network.link_bytes_max // 2:
            far._turned_away = False
            far.incarnation.later_on(self._network.delay(), far, "drained", 0, far._drained)

    def _drained(self) -> None:
        if self._stage is SimulatedLinkState.OPEN:
            self._handler.drained(self)


class SimulatedListener:
    """Where a node listens."""

    def __init__(
        self,
        network: SimulatedNetwork,
        life: Incarnation,
        address: Address,
        handler: LinkHandler,
        owner: "SimulatedTransport",
    ):
        self._network = network
        self._handler = handler
        self._owner = owner
        self.incarnation = life
        self._address = address

    @property
    def address(self) -> Address:
        return self._address

    def close(self) -> None:
        self._network.shut_door(self)

    def accept(self, caller: SimulatedLink) -> None:
        """Shake hands with a caller, and notify it after the way back."""
        network = self._network
        back_ns = network.delay()
        ours = self._owner.identity
        if same_cluster(ours)(Hello(caller.identity)) is not None:
            network.scheduler.after(back_ns, caller.end, CloseReason.REJECTED)
            return
        link = SimulatedLink(network, self.incarnation, self._handler, ours, caller.host)
        network.join(link)
        if not caller.is_answered_by(link, network.scheduler.now + back_ns):
            network.scheduler.after(back_ns, link.end, CloseReason.ENDED)
        elif network.is_cut(self.incarnation.name, caller.host):
            network.scheduler.after(network.idle_timeout_ns, link.end, CloseReason.SILENT)
        else:
            caller.incarnation.later_on(
                back_ns, caller, "answered", self.incarnation.name, caller.opens, link
            )
        link.opens(caller)


class SimulatedTransport:
    """The transport port of one incarnation of a node."""

    def __init__(self, network: SimulatedNetwork, life: Incarnation, identity: NodeIdentity) -> None:
        self._network = network
        self._incarnation = life
        self.identity = identity

    def join_cluster(self, cluster_id: UUID) -> None:
        self.identity = self.identity._replace(cluster_id=cluster_id)

    def listen(self, address: Address, handler: LinkHandler) -> SimulatedListener:
        if not address.port:
            address = address._replace(port=self._network.free_port())
        door = SimulatedListener(self._network, self._incarnation, address, handler, self)
        if address.host != self._incarnation.name or not self._network.open_door(door):
            raise AddressUnavailable(f"cannot listen on {address}")
        return door

    def connect(self, address: Address, handler: LinkHandler) -> SimulatedLink:
        link = SimulatedLink(self._network, self._incarnation, handler, self.identity, address.host)
        self._network.call(link, address)
        return link
