"""A small service on the runtime port, which runs on both of its forms: a durable, deduplicating echo.

It has the bones of everything that is built on the port: a listener and a caller with retry timers and
correlation ids, group commit, responses that wait for a sync, recovery from a torn file. The same classes
run on the production runtime over real sockets and files, and on the simulated one under every fault
there is: what holds for one form of the port must hold for the other.

    request   kind 1 | request id 16 | payload
    answer    kind 2 | request id 16 | payload
    entry     crc32 uint32 | length uint32 | request id 16 | payload      (length: of id and payload)

Left out: it never forgets an id, and it has one server.
"""

import struct
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.core.model import MILLISECOND, SECOND, Instant, ProtocolError, StorageError
from penstock.observability import log
from penstock.runtime import Address, Callback, CloseReason, Link, NodeIdentity, Runtime, Service, Timer
from penstock.sim import FaultPlan, Nemesis, RunResult, World
from penstock.storage.commit import GroupCommit
from penstock.storage.disk import CrashableDisk, Disk, File

REQUEST = 1
ANSWER = 2
ID_BYTES = 16

_ENTRY = struct.Struct(">II")


class Message(NamedTuple):
    """A request or a response."""

    kind: int
    request_id: bytes
    payload: bytes


def write_message(kind: int, request_id: bytes, payload: bytes) -> bytes:
    return bytes((kind,)) + request_id + payload


def read_message(frame: bytes) -> Message:
    if len(frame) < 1 + ID_BYTES or frame[0] not in (REQUEST, ANSWER):
        raise ProtocolError("not an echo message")
    return Message(frame[0], frame[1 : 1 + ID_BYTES], frame[1 + ID_BYTES :])


class Entry(NamedTuple):
    """One request in the server's file."""

    request_id: bytes
    payload: bytes


def write_entry(entry: Entry) -> bytes:
    body = entry.request_id + entry.payload
    return _ENTRY.pack(zlib.crc32(body), len(body)) + body


def read_entries(content: bytes) -> tuple[list[Entry], int]:
    """Read entries up to the first that is torn; also returns where the good ones end."""
    entries: list[Entry] = []
    position = 0
    while position + _ENTRY.size <= len(content):
        crc, length = _ENTRY.unpack_from(content, position)
        start = position + _ENTRY.size
        body = content[start : start + length]
        if length < ID_BYTES or len(body) < length or zlib.crc32(body) != crc:
            break
        entries.append(Entry(body[:ID_BYTES], body[ID_BYTES:]))
        position = start + length
    return entries, position


FILE = "echo/requests"


class DurableEcho:
    """Appends requests to a file, syncs in groups, responds after the sync.

    A request id is written once, however often it arrives and however often the server
    crashes between. Links come and go: a response goes to the link that asked last.
    """

    def __init__(self, runtime: Runtime, disk: Disk, address: Address) -> None:
        self._runtime = runtime
        self._commit = GroupCommit(runtime.sync)
        self._waiting: dict[bytes, tuple[Link, bytes]] = {}  # not durable yet
        self._stopped: Callback | None = None
        self._file, self._durable = self._recover(disk)
        self._listener = runtime.transport.listen(address, self)

    @property
    def address(self) -> Address:
        return self._listener.address

    def _recover(self, disk: Disk) -> tuple[File, dict[bytes, None]]:
        """Cut a torn tail and make sure that what is left is durable.

        What is read back may be in the page cache only: the process was killed, or a sync
        failed, which leaves pages that look clean and are on no disk. Writing them again is
        what makes a sync mean something.
        """
        disk.make_directory("echo")
        file = disk.open(FILE, create=True)
        content = file.pread(0, file.size())
        entries, good = read_entries(content)
        file.truncate(good)
        file.pwrite(0, content[:good])
        file.sync()
        disk.sync_directory("echo")
        disk.sync_directory("")
        return file, {entry.request_id: None for entry in entries}

    def opened(self, link: Link, peer: NodeIdentity) -> None:
        """Who asks does not matter here."""

    def drained(self, link: Link) -> None:
        """A response that the link rejected is asked for again."""

    def closed(self, link: Link, ending: CloseReason) -> None:
        """A response to a closed link goes nowhere, and is asked for again."""

    def received(self, link: Link, frame: bytes) -> None:
        try:
            kind, request_id, payload = read_message(frame)
        except ProtocolError:
            link.close()
            return
        if kind != REQUEST or self._stopped is not None:
            return
        if request_id in self._durable:
            self._answer(link, request_id, payload)
        elif request_id in self._waiting:
            self._waiting[request_id] = (link, payload)
        else:
            self._write(link, Entry(request_id, payload))

    def _write(self, link: Link, entry: Entry) -> None:
        self._file.append(write_entry(entry))
        self._waiting[entry.request_id] = (link, entry.payload)
        self._commit.request(self._file, lambda failure: self._synced(entry.request_id, failure))

    def _synced(self, request_id: bytes, failure: StorageError | None) -> None:
        if failure is not None:
            # Nobody knows what is on disk now; the next incarnation finds out.
            raise failure
        self._durable[request_id] = None
        link, payload = self._waiting.pop(request_id)
        self._answer(link, request_id, payload)
        if self._stopped is not None and not self._waiting:
            self._finish()

    def _answer(self, link: Link, request_id: bytes, payload: bytes) -> None:
        link.send(write_message(ANSWER, request_id, payload))

    def stop(self, done: Callback) -> None:
        """Take no more requests, respond to those that are written, and close the file."""
        self._stopped = done
        self._listener.close()
        if not self._waiting:
            self._finish()

    def _finish(self) -> None:
        self._file.close()
        assert self._stopped is not None
        self._runtime.timers.soon(self._stopped)


RETRY_MS = 300
RECONNECT_MS = 50


@dataclass(slots=True)
class EchoHistory:
    """What clients did and saw; it outlives them, and is what the checker judges."""

    sent: dict[bytes, bytes] = field(default_factory=dict)
    answered: dict[bytes, bytes] = field(default_factory=dict)
    answers: int = 0

    def saw_answer(self, request_id: bytes, payload: bytes) -> None:
        self.answers += 1
        self.answered.setdefault(request_id, payload)


@dataclass(frozen=True, slots=True)
class Load:
    """How many requests, how many underway at a time, and the pause between response and next request."""

    count: int
    window: int
    think_ms: int = 0


class EchoClient:
    """Sends its load of requests to a server and keeps asking until each has a response.

    A restarted client starts over with ids of its own: the first bytes of an id are drawn
    anew in every incarnation.
    """

    def __init__(
        self,
        runtime: Runtime,
        server: Address,
        history: EchoHistory,
        load: Load,
        finished: Callable[[], None] = lambda: None,
    ) -> None:
        self._runtime = runtime
        self._server = server
        self._history = history
        self._load = load
        self._finished = finished
        self._prefix = runtime.entropy.bytes(8)
        self._number = 0
        self._underway: dict[bytes, Timer] = {}
        self._reconnect: Timer | None = None
        self._is_open = False
        self._stopping = False
        self._link = runtime.transport.connect(server, self)

    def opened(self, link: Link, peer: NodeIdentity) -> None:
        log.debug("echo.opened", node=peer.node_id)
        self._link = link
        self._is_open = True
        for request_id in list(self._underway):
            self._ask(request_id)
        self._fill_window()

    def drained(self, link: Link) -> None:
        """A request that was turned away is sent again by its timer."""

    def closed(self, link: Link, ending: CloseReason) -> None:
        log.debug("echo.closed", ending=ending.name)
        self._is_open = False
        if not self._stopping and link is self._link:
            self._reconnect = self._after(RECONNECT_MS, self._connect)

    def _connect(self) -> None:
        self._link = self._runtime.transport.connect(self._server, self)

    def _fill_window(self) -> None:
        while (
            len(self._underway) < self._load.window and self._number < self._load.count and not self._stopping
        ):
            self._number += 1
            request_id = self._prefix + self._number.to_bytes(8, "big")
            self._history.sent[request_id] = b"request %d" % self._number
            self._ask(request_id)

    def _ask(self, request_id: bytes) -> None:
        """Send a request (again), and set the timer for the next try."""
        if (old := self._underway.get(request_id)) is not None:
            old.cancel()
        # Jitter, or all requests of a window would be repeated in the same moment for ever.
        wait_ms = RETRY_MS + self._runtime.entropy.bytes(1)[0]
        self._underway[request_id] = self._after(wait_ms, lambda: self._ask(request_id))
        if self._is_open:
            self._link.send(write_message(REQUEST, request_id, self._history.sent[request_id]))

    def received(self, link: Link, frame: bytes) -> None:
        try:
            kind, request_id, payload = read_message(frame)
        except ProtocolError:
            link.close()
            return
        if kind != ANSWER:
            return
        self._history.saw_answer(request_id, payload)
        timer = self._underway.pop(request_id, None)
        if timer is None:
            return  # a second response to the same request
        timer.cancel()
        if self._load.think_ms:
            self._after(self._load.think_ms, self._fill_window)
        else:
            self._fill_window()
        if self._number == self._load.count and not self._underway:
            self._finished()

    def _after(self, delay_ms: int, fire: Callback) -> Timer:
        return self._runtime.timers.at(Instant(self._runtime.clock.now() + delay_ms * MILLISECOND), fire)

    def stop(self, done: Callback) -> None:
        self._stopping = True
        for timer in self._underway.values():
            timer.cancel()
        if self._reconnect is not None:
            self._reconnect.cancel()
        self._link.close()
        self._runtime.timers.soon(done)


def check_echo(
    sent: Mapping[bytes, bytes], answered: Mapping[bytes, bytes], stored: Sequence[tuple[bytes, bytes]]
) -> list[str]:
    """Name the anomalies: `stored` is what the server's file holds after all crashes, in order."""
    anomalies: list[str] = []
    counts = Counter(request_id for request_id, _ in stored)
    lost = [request_id for request_id in answered if request_id not in counts]
    if lost:
        anomalies.append(f"lost: {len(lost)} answered requests are not on disk, the first is {lost[0].hex()}")
    twice = [request_id for request_id, count in counts.items() if count > 1]
    if twice:
        anomalies.append(f"duplicate: {len(twice)} requests are on disk twice, the first is {twice[0].hex()}")
    anomalies += _unexpected("answered", sent, list(answered.items()))
    anomalies += _unexpected("stored", sent, stored)
    return anomalies


def _unexpected(what: str, sent: Mapping[bytes, bytes], seen: Sequence[tuple[bytes, bytes]]) -> list[str]:
    strange = [request_id for request_id, payload in seen if sent.get(request_id) != payload]
    if not strange:
        return []
    return [
        f"unexpected: {len(strange)} requests were {what} but never sent so, the first is {strange[0].hex()}"
    ]


SERVER = Address("server", 7000)
CLIENTS = 2
LOAD = Load(count=500, window=8, think_ms=50)
FAULTY_NS = 20 * SECOND
HEALING_NS = 60 * SECOND

ServerProgram = Callable[[Runtime, Disk, Address], Service]


def run_echo(seed: int, server: ServerProgram = DurableEcho, plan: FaultPlan | None = None) -> RunResult:
    """Run one world to its end and check it. The same arguments give the same result, to the bit."""
    world = World(seed)
    history = EchoHistory()
    nemesis = Nemesis(world, plan or FaultPlan.draw(world.random("plan")))
    finished: dict[str, bool] = {}
    world.add("server", lambda runtime, disk: server(runtime, disk, SERVER))
    for number in range(1, CLIENTS + 1):
        _add_client(world, f"client-{number}", history, finished)
    world.start_all()
    nemesis.begin()
    world.run(FAULTY_NS)
    nemesis.end()
    world.run(HEALING_NS, lambda: len(finished) == CLIENTS or bool(world.failures))

    anomalies = list(world.failures)
    if len(finished) < CLIENTS and not anomalies:
        anomalies.append(f"stuck: unanswered {HEALING_NS // SECOND} s after the last fault")
    # Whatever the server still holds in memory, the power cut takes.
    world.nodes["server"].cut_power()
    anomalies += check_echo(history.sent, history.answered, _stored(world.nodes["server"].disk))
    return RunResult(
        seed=seed,
        anomalies=tuple(anomalies),
        operations=len(history.sent),
        acknowledged=len(history.answered),
        events=world.scheduler.events,
        virtual_ms=world.scheduler.now // MILLISECOND,
        faults=dict(sorted(nemesis.counts.items())),
        trace=world.trace.digest(),
    )


def _add_client(world: World, name: str, history: EchoHistory, finished: dict[str, bool]) -> None:
    def program(runtime: Runtime, _disk: Disk) -> Service:
        finished.pop(name, None)  # a new incarnation begins from the start

        def done() -> None:
            finished[name] = True

        return EchoClient(runtime, SERVER, history, LOAD, done)

    world.add(name, program)


def _stored(disk: CrashableDisk) -> list[tuple[bytes, bytes]]:
    if not disk.exists(FILE):
        return []
    file = disk.open(FILE, readonly=True)
    return [(entry.request_id, entry.payload) for entry in read_entries(file.pread(0, file.size()))[0]]
