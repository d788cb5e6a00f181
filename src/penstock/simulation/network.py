"""The network between simulated nodes: delay, loss, reordering, duplicates, cuts and refusals.

Links are worse than TCP on purpose, exactly as bad as the runtime port's contract allows:
frames may vanish or overtake each other on a link that stays open.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.core.model import MICROSECOND, MILLISECOND, SECOND
from penstock.runtime import Address, CloseReason
from penstock.simulation.scheduler import Scheduler
from penstock.simulation.trace import Trace

if TYPE_CHECKING:
    from penstock.simulation.links import SimulatedDoor, SimulatedLink

_MOST_BYTES_IN_FLIGHT = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Weather:
    """How well frames travel just now; the rates are per frame and add up to at most one."""

    delay_min_ns: int = 50 * MICROSECOND
    delay_max_ns: int = 2 * MILLISECOND
    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0


FAIR = Weather()


class Network:
    """All machines, doors and links of a world, by host name."""

    connect_timeout_ns = 2 * SECOND
    idle_timeout_ns = 10 * SECOND
    link_bytes_max = _MOST_BYTES_IN_FLIGHT

    def __init__(self, scheduler: Scheduler, luck: random.Random, trace: Trace) -> None:
        self.scheduler = scheduler
        self.random = luck
        self.trace = trace
        self.weather = FAIR
        self._doors: dict[Address, SimulatedDoor] = {}
        self._dark: dict[str, None] = {}  # machines without power
        self._cuts: dict[tuple[str, str], object] = {}
        self._links: dict[SimulatedLink, None] = {}
        self._next_port = 40_000
        self._watchers: list[Callable[[str], None]] = []

    def when_process_ends(self, watcher: Callable[[str], None]) -> None:
        """Tell `watcher` the host whenever a process ends on a machine that runs on."""
        self._watchers.append(watcher)

    def is_dark(self, host: str) -> bool:
        """Whether there is not even a kernel that could answer."""
        return host in self._dark

    def delay(self) -> int:
        weather = self.weather
        span = weather.delay_max_ns - weather.delay_min_ns
        return weather.delay_min_ns + int(self.random.random() * span)

    def free_port(self) -> int:
        self._next_port += 1
        return self._next_port

    def open_door(self, door: "SimulatedDoor") -> bool:
        if door.address in self._doors:
            return False
        self._doors[door.address] = door
        return True

    def shut_door(self, door: "SimulatedDoor") -> None:
        if self._doors.get(door.address) is door:
            del self._doors[door.address]

    def is_cut(self, source: str, target: str) -> bool:
        return bool(self._cuts) and (source, target) in self._cuts

    def cut(self, source: str, target: str) -> None:
        """Let nothing through from `source` to `target`; the other direction is a cut of its own."""
        token = object()
        self._cuts[source, target] = token
        self.scheduler.after(self.idle_timeout_ns, self._fall_silent, source, target, token)

    def mend(self, source: str, target: str) -> None:
        self._cuts.pop((source, target), None)

    def mend_all(self) -> None:
        self._cuts.clear()

    def _fall_silent(self, source: str, target: str, token: object) -> None:
        """A cut has lasted for the idle timeout: the side that hears nothing gives up."""
        if self._cuts.get((source, target)) is not token:
            return
        for link in list(self._links):
            if link.host == target and link.far_host == source:
                link.end(CloseReason.SILENT)

    def go_dark(self, host: str, *, power_lost: bool) -> None:
        """A node died. Its kernel closes the connections, unless the kernel is gone as well."""
        for address in [address for address in self._doors if address.host == host]:
            del self._doors[address]
        if power_lost:
            self._dark[host] = None
        for link in [link for link in self._links if link.host == host]:
            link.vanish(silently=power_lost)
        for watcher in self._watchers if not power_lost else ():
            watcher(host)

    def light_up(self, host: str) -> None:
        self._dark.pop(host, None)

    def join(self, link: "SimulatedLink") -> None:
        self._links[link] = None

    def part(self, link: "SimulatedLink") -> None:
        self._links.pop(link, None)

    def call(self, link: "SimulatedLink", address: Address) -> None:
        """Carry a caller's request to the door at `address`."""
        self.join(link)
        link.life.later(self.connect_timeout_ns, "overdue", 0, link.give_up)
        self.scheduler.after(self.delay(), self._knock, link, address)

    def _knock(self, link: "SimulatedLink", address: Address) -> None:
        if address.host in self._dark or self.is_cut(link.host, address.host):
            return  # no answer; the caller gives up by itself
        door = self._doors.get(address)
        if door is not None:
            door.life.deliver("call", link.host, door.welcome, link)
        elif not self.is_cut(address.host, link.host):
            self.scheduler.after(self.delay(), link.end, CloseReason.REFUSED)

    def carry(self, target: "SimulatedLink", frame: bytes) -> None:
        """Send a frame on its way to the other end of a link."""
        weather = self.weather
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
        """Tell the other end that its link is over, or let it find out by the silence."""
        if self.is_cut(target.far_host, target.host):
            self.scheduler.after(self.idle_timeout_ns, target.end, CloseReason.SILENT)
        else:
            arrival = max(self.scheduler.now + self.delay(), target.last_arrival)
            self.scheduler.at(arrival, target.end, CloseReason.ENDED)
