"""What an attack is, how it is found by its name, and what an attacker has to work with."""

import socket
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks.attacks.niceness import leave_session
from benchmarks.attacks.nodes import NodeSetup
from penstock.client import ClientError
from penstock.client.connection import BrokerConnection
from penstock.core.protocol import ErrorCode, Message
from penstock.core.protocol.messages.create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestConfig,
    CreateTopicsRequestTopic,
)

Address = tuple[str, int]
# The loop of a node must be what is busy: attackers get a core only when nobody else wants it. All attackers
# of three nodes are 220 processes: at a niceness of 0 they would leave little to nodes even of -15.
ATTACKER_NICENESS = 19
# After a refusal; without it a refused attacker would only measure how quick `accept` is.
PAUSE_SECONDS = 0.02
# An answer that is late is waited for this long after the attack should be over.
LATE_SECONDS = 10
NO_LINGER = struct.pack("ii", 1, 0)


@dataclass(frozen=True, slots=True)
class Target:
    """What attackers know of the nodes."""

    kafka: tuple[Address, ...]
    http: tuple[Address, ...] = ()
    grpc: tuple[str, ...] = ()
    peers: tuple[Address, ...] = ()
    # Listeners with logins, of each node by their protocol.
    secured: tuple[dict[str, Address], ...] = ()
    pids: tuple[int, ...] = ()
    data_dirs: tuple[Path, ...] = ()
    seconds: float = 10.0


class Attacker:
    """One process that attacks until its time is over, and counts what it did."""

    def __init__(self, target: Target, number: int = 0) -> None:
        self.target = target
        self.number = number
        self.counts: Counter[str] = Counter()
        self.deadline = 0.0
        self.start()

    def start(self) -> None:
        """Let the time begin now: what an attacker made before, such as a large frame, does not count."""
        self.deadline = time.monotonic() + self.target.seconds

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self.deadline

    @property
    def left_seconds(self) -> float:
        return max(0.0, self.deadline - time.monotonic())

    def pause(self, seconds: float = PAUSE_SECONDS) -> None:
        time.sleep(min(seconds, self.left_seconds))

    def address(self, number: int | None = None) -> Address:
        """One of the nodes; attackers are spread over them."""
        addresses = self.target.kafka
        return addresses[(self.number if number is None else number) % len(addresses)]

    def secured(self, protocol: str, number: int = 0) -> Address:
        """A listener with logins of one of the nodes."""
        nodes = self.target.secured
        return nodes[(self.number + number) % len(nodes)][protocol]

    def connect(self, number: int | None = None) -> BrokerConnection:
        """A connection of our own client; a response that never comes ends with the attack."""
        return BrokerConnection(
            self.address(number), client_id="attacker", request_seconds=self.left_seconds + LATE_SECONDS
        )

    def open(self, address: Address | None = None) -> socket.socket:
        """A connection that says nothing by itself, and whose end is a reset."""
        opened = socket.create_connection(address or self.address(), self.left_seconds + LATE_SECONDS)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return opened

    def sockets(self, count: int, address_of: Callable[[int], Address] | None = None) -> list[socket.socket]:
        """As many as the node lets in, `count` at most; the rest are counted as refused."""
        address_of = address_of or self.address
        opened: list[socket.socket] = []
        while len(opened) < count and not self.is_over:
            try:
                opened.append(self.open(address_of(len(opened))))
            except OSError:
                self.counts["refused"] += 1
                if self.counts["refused"] > count:
                    break
        self.counts["connections"] = max(self.counts["connections"], len(opened))
        return opened

    def rounds(self) -> Iterator[int]:
        """Count up until the time is over."""
        number = 0
        while not self.is_over:
            yield number
            number += 1

    def insist(
        self,
        step: Callable[[BrokerConnection], object],
        connect: Callable[[], BrokerConnection] | None = None,
    ) -> None:
        """Do something over and over on a connection, and on another one whenever it is closed."""
        connect = connect or self.connect
        while not self.is_over:
            connection = None
            try:
                connection = connect()
                while not self.is_over:
                    step(connection)
            except (ClientError, OSError):
                self.counts["disconnected"] += 1
                self.pause()
            finally:
                if connection is not None:
                    connection.close()

    def ask(self, connection: BrokerConnection, request: Message) -> Any:
        """A request and its response, counted."""
        response = connection.ask(request)
        self.counts["requests"] += 1
        return response

    def exchange(self, connection: BrokerConnection, frame: bytes | bytearray) -> bytes:
        """A frame and its response, counted."""
        response = connection.exchange(frame)
        self.counts["requests"] += 1
        return response

    def repeat_frame(self, make: Callable[[BrokerConnection], bytes | bytearray]) -> None:
        """Send one frame over and over."""
        first = self.connect()
        try:
            frame = make(first)
        finally:
            first.close()
        self.counts["frame_bytes"] = len(frame)
        self.start()
        self.insist(lambda connection: self.exchange(connection, frame))

    def create_topic(self, name: str, partitions: int = 1, **configs: str) -> None:
        """Create a topic, or find that it is there."""
        topic = CreateTopicsRequestTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=-1,
            assignments=(),
            configs=tuple(
                CreateTopicsRequestConfig(name=key.replace("_", "."), value=value)
                for key, value in configs.items()
            ),
        )
        connection = self.connect(0)
        try:
            response = connection.ask(CreateTopicsRequest(topics=(topic,), timeout_ms=30_000))
        finally:
            connection.close()
        code = response.topics[0].error_code
        if code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            self.counts[f"create_topic: {ErrorCode(code).name}"] += 1


AttackStep = Callable[[Attacker], None]


@dataclass(frozen=True, slots=True)
class Attack:
    """One way to hurt a node."""

    name: str
    family: str
    description: str
    run: AttackStep
    processes: int = 1
    setup: NodeSetup = field(default_factory=NodeSetup)
    # Done before the baseline is measured.
    prepare: AttackStep | None = None
    # Done to the data directories while all nodes are stopped after the attack.
    while_stopped: Callable[[list[Path]], None] | None = None
    # Nobody can be served that long at a time: the process stands still, or there is no room.
    outage_seconds: float = 0.0
    # Left out where all attackers work together: it stops a node, or needs surroundings of its own.
    is_alone: bool = False


class AttackTable:
    """The attacks of one family; each is a function with a docstring, which is its description."""

    def __init__(self, family: str) -> None:
        self.family = family
        self.attacks: list[Attack] = []

    def attack(self, name: str, **options: Any) -> Callable[[AttackStep], AttackStep]:
        """Enter a function under a name."""

        def enter(run: AttackStep) -> AttackStep:
            assert run.__doc__, f"{name}: an attack says in one line what it does"
            self.attacks.append(
                Attack(name, self.family, run.__doc__.split("\n")[0].removesuffix("."), run, **options)
            )
            return run

        return enter


def run_attacker(
    step: AttackStep, target: Target, number: int, results: Connection, *, is_repeated: bool
) -> None:
    """What an attacker's process does: attack, and send its counts when the time is over."""
    leave_session(ATTACKER_NICENESS)
    attacker = Attacker(target, number)
    try:
        while not attacker.is_over:
            try:
                step(attacker)
                if not is_repeated:
                    break
            except (ClientError, OSError) as error:
                # The node may be down for a moment, or may have had enough of us.
                attacker.counts[f"failed: {type(error).__name__}"] += 1
                attacker.pause(0.2)
    finally:
        results.send(dict(attacker.counts))
        results.close()
