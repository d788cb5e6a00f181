"""kill -9 under load: how soon the next write is accepted, and whether every acknowledged record is there.

Numbered records go to all partitions in turn, many in flight, until the process is killed at some
moment of the second half of the load. Then it is started again on the same directory and port, and
two times are taken from the start of the process: to the first accepted write, and until every
partition has accepted one. At the end each partition is read from start to end.

Small batches are the worst case: what a start has to read is as many as come between two checkpoints,
so that their load lasts nearly that long. The CPU of the start says more than its time if the machine
does something else.
"""

import random
import selectors
import socket
import struct
import subprocess
import sys
import tempfile
import time
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.cluster.nodes import launch
from benchmarks.durability.sides import EVERY, Comparison
from benchmarks.macro.brokers import Peer
from benchmarks.peers.kafka import free_port, installed
from benchmarks.peers.kafka import stop as stop_kafka
from benchmarks.peers.maven import PeerUnavailable
from benchmarks.side_by_side import KAFKA
from penstock.cli.bench.report import MEGABYTE, Figures
from penstock.cli.bench.scenarios import usage_of
from penstock.cli.child import stop
from penstock.client import ClientError, Endpoint, TopicAdmin
from penstock.client.connection import BrokerConnection
from penstock.client.load import open_connections, produce_frame
from penstock.core.protocol import ErrorCode
from penstock.core.records import Record, write_batch
from penstock.core.records.batch import seal

TOPIC = "killed"
# Just before the first checkpoints of the logs.
SMALL_SECONDS = 9.5
CONNECTIONS = 8
IN_FLIGHT = 256
BURST = IN_FLIGHT // CONNECTIONS
# A load that is killed before so many records were acknowledged would prove little.
ACKNOWLEDGED_MIN = 1_000
RECEIVE_BYTES = 1 << 16
START_SECONDS = 120.0
REQUEST_SECONDS = 30.0
LOOK_SECONDS = 0.002
READ_SECONDS = 20.0
READ_RECORDS = 10_000
# Kafka takes many seconds to start; a few times show the order of magnitude.
KILLS_MAX = {KAFKA: 3}
NOBODY = -1
FLEXIBLE_PRODUCE = 9
SIZE_BYTES = 4
JOURNAL_FILES = "meta/journal/*.journal"

_NUMBER = struct.Struct(">q")
# Of a flexible Produce response, behind the topic's name and the number of its partitions.
_PLACE = struct.Struct(">ihq")
_COUNT_BYTES = 1


@dataclass(frozen=True, slots=True)
class KilledLoad:
    """How many logs there are to recover, what is written to them, and how often that is tried at most.

    `seconds` of None: as long as is asked for, for kills that come at any moment of the second half.
    """

    partitions: int
    value_bytes: int
    kills_max: int | None
    seconds: float | None = None

    @property
    def name(self) -> str:
        return f"{self.partitions} partitions, {self.value_bytes} bytes"


LOADS = (
    KilledLoad(6, 2_000, 5),
    KilledLoad(200, 2_000, None),
    KilledLoad(6, 10, 2, SMALL_SECONDS),
    KilledLoad(200, 10, 2, SMALL_SECONDS),
    KilledLoad(1_000, 10, 2, SMALL_SECONDS),
)


@dataclass(slots=True)
class Findings:
    """What is wrong, by kind.

    `lost` records were acknowledged at offsets where nothing was read, `replaced` ones where another was
    read; `reused` offsets were acknowledged for two records.
    """

    lost: int = 0
    replaced: int = 0
    reused: int = 0
    duplicates: int = 0
    unexpected: int = 0


class Acknowledgements:
    """Which number was acknowledged at which offset. Number n goes to partition n modulo their count."""

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions
        self.sent = 0
        self.count = 0
        self._reused = 0
        self._numbers = [array("q") for _ in range(partitions)]

    def note(self, partition: int, offset: int, number: int) -> None:
        numbers = self._numbers[partition]
        if offset >= len(numbers):
            numbers.extend([NOBODY] * (offset + 1 - len(numbers)))
        if numbers[offset] == NOBODY:
            numbers[offset] = number
            self.count += 1
        else:
            self._reused += 1

    def compare(self, records: Iterable[tuple[int, int, int]]) -> Findings:
        """Everything that was read, as (partition, offset, number), against what was acknowledged."""
        found = Findings(reused=self._reused)
        seen = bytearray(self.sent)
        kept = 0
        for partition, offset, number in records:
            if not (0 <= number < self.sent and number % self.partitions == partition):
                found.unexpected += 1
                continue
            found.duplicates += seen[number]
            seen[number] = 1
            numbers = self._numbers[partition]
            expected = numbers[offset] if offset < len(numbers) else NOBODY
            if expected == number:
                kept += 1
            elif expected != NOBODY:
                found.replaced += 1
        found.lost = self.count - kept - found.replaced
        return found


@dataclass(frozen=True, slots=True)
class Victim:
    """A broker that can be killed and started again on the same directory and port."""

    name: str
    start: Callable[[], "subprocess.Popen[bytes]"]
    stop: Callable[["subprocess.Popen[bytes]"], None]
    port: int
    data_dir: Path

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self.port


class NumberedFrames:
    """Produce requests of one record with a number, made by changing a request that is there already."""

    def __init__(self, connection: BrokerConnection, load: KilledLoad) -> None:
        value = b"x" * load.value_bytes
        batch = bytes(write_batch([Record(0, time.time_ns() // 1_000_000, None, value, ())]))
        self._frames = [
            produce_frame(connection, TOPIC, partition, batch, 1) for partition in range(load.partitions)
        ]
        self._batch_start = self._frames[0].index(batch)
        self._batch_end = self._batch_start + len(batch)
        self._value_start = self._frames[0].index(value)

    def frame(self, number: int) -> bytes:
        """The request for a number."""
        frame = self._frames[number % len(self._frames)]
        _NUMBER.pack_into(frame, self._value_start, number)
        seal(frame, self._batch_start, self._batch_end)
        return bytes(frame)


class NumberedLoad:
    """Numbered records on several connections, and what became of them."""

    def __init__(self, address: tuple[str, int], load: KilledLoad) -> None:
        self.acknowledgements = Acknowledgements(load.partitions)
        self._partitions = load.partitions
        self._address = address
        first = open_connections(address, 1)[0]
        if first.versions[0] < FLEXIBLE_PRODUCE:
            raise ClientError(f"Produce {first.versions[0]} is too old for this measure")
        self._frames = NumberedFrames(first, load)
        first.close()

    def run(self, seconds: float, kill: Callable[[], None]) -> None:
        """Send for so long, kill the broker, and take what responses there still are.

        A kill before anything was acknowledged would show nothing, so it waits for that.
        """
        end = time.perf_counter() + seconds
        enough = self.acknowledgements.count + ACKNOWLEDGED_MIN
        with ExitStack() as stack:
            watch = stack.enter_context(selectors.DefaultSelector())
            flows = [stack.enter_context(Flow(self._address)) for _ in range(CONNECTIONS)]
            for flow in flows:
                watch.register(flow.socket, selectors.EVENT_READ, flow)
                self._send(flow, self._next_numbers(BURST))
            while (now := time.perf_counter()) < end or self.acknowledgements.count < enough:
                if now > end + REQUEST_SECONDS:
                    raise ClientError(f"fewer than {ACKNOWLEDGED_MIN} records were acknowledged in time")
                for key, _ in watch.select(1.0):
                    answered = self._receive(key.data)
                    if not all(answered.values()):
                        raise ClientError("a write was refused while the broker was up")
                    self._send(key.data, self._next_numbers(len(answered)))
            kill()
            for flow in flows:
                self._receive_the_rest(flow)

    def write_once(self) -> bool:
        """Write one record, to the next partition; returns whether it was accepted."""
        with Flow(self._address) as flow:
            return all(self._exchange(flow, self._next_numbers(1)).values())

    def write_everywhere(self, deadline_s: float) -> None:
        """Write a record to every partition, again where it is refused."""
        missing = set(range(self._partitions))
        with Flow(self._address) as flow:
            while missing:
                numbers = self._next_numbers(self._partitions)
                answered = self._exchange(flow, [n for n in numbers if n % self._partitions in missing])
                missing -= {number % self._partitions for number, accepted in answered.items() if accepted}
                if missing and time.perf_counter() > deadline_s:
                    raise ClientError(f"{len(missing)} partitions did not accept a write in time")

    def _next_numbers(self, count: int) -> range:
        start = self.acknowledgements.sent
        self.acknowledgements.sent += count
        return range(start, start + count)

    def _send(self, flow: "Flow", numbers: Sequence[int]) -> None:
        flow.numbers.extend(numbers)
        flow.socket.sendall(b"".join([self._frames.frame(number) for number in numbers]))

    def _receive(self, flow: "Flow") -> dict[int, bool]:
        """Whether each number that has a response now was accepted."""
        return {number: self._note(response, number) for number, response in flow.receive()}

    def _exchange(self, flow: "Flow", numbers: Sequence[int]) -> dict[int, bool]:
        self._send(flow, numbers)
        answered: dict[int, bool] = {}
        while len(answered) < len(numbers):
            answered |= self._receive(flow)
        return answered

    def _receive_the_rest(self, flow: "Flow") -> None:
        try:
            while flow.numbers:
                self._receive(flow)
        except OSError:
            # What had not arrived when the connection ended was never acknowledged.
            return

    def _note(self, response: bytes, number: int) -> bool:
        name_end = response.index(TOPIC.encode()) + len(TOPIC)
        partition, error, offset = _PLACE.unpack_from(response, name_end + _COUNT_BYTES)
        if error != ErrorCode.NONE:
            return False
        if partition != number % self._partitions:
            raise ClientError(f"the response to a write to {number % self._partitions} is for {partition}")
        self.acknowledgements.note(partition, offset, number)
        return True


class Flow:
    """One connection: the numbers without a response, and what has come of the next response."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address, REQUEST_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.numbers: deque[int] = deque()
        self._received = b""

    def __enter__(self) -> "Flow":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def receive(self) -> list[tuple[int, bytes]]:
        """Wait for more bytes; returns the numbers that have a response now, with it."""
        more = self.socket.recv(RECEIVE_BYTES)
        if not more:
            raise ConnectionResetError("the broker closed the connection")
        received, start = self._received + more, 0
        answered: list[tuple[int, bytes]] = []
        while len(received) >= start + SIZE_BYTES:
            end = start + SIZE_BYTES + int.from_bytes(received[start : start + SIZE_BYTES], "big")
            if end > len(received):
                break
            answered.append((self.numbers.popleft(), received[start + SIZE_BYTES : end]))
            start = end
        self._received = received[start:]
        return answered


class KilledBroker:
    """A broker with a load that survives it."""

    def __init__(self, victim: Victim, load: KilledLoad, seconds: float) -> None:
        self.victim = victim
        self._kind = load
        self._partitions = load.partitions
        self._seconds = seconds
        self._luck = random.Random(1)
        self._process = victim.start()
        try:
            self._await(lambda: TopicAdmin(self.endpoint) is not None)
            TopicAdmin(self.endpoint).create(TOPIC, load.partitions, 1, {})
            Peer(victim.name, self.endpoint).await_served(TOPIC)
            self.load = NumberedLoad(victim.address, load)
        except BaseException:
            self.stop()
            raise

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint(f"127.0.0.1:{self.victim.port}")

    def kill_and_start(self) -> Figures:
        """One kill under load, and how long the start after it takes to accept writes again."""
        acknowledged = self.load.acknowledgements.count
        try:
            self.load.run(self._kind.seconds or self._seconds * self._luck.uniform(0.5, 1.0), self._kill)
            acknowledged = self.load.acknowledgements.count - acknowledged
            journal_bytes = sum(path.stat().st_size for path in self.victim.data_dir.glob(JOURNAL_FILES))
            began = time.perf_counter()
            self._process = self.victim.start()
            self._await(self.load.write_once)
            first_s = time.perf_counter() - began
            cpu_ns = usage_of(self._process.pid).cpu_ns
            self.load.write_everywhere(began + START_SECONDS)
            all_s = time.perf_counter() - began
        except OSError as error:
            raise ClientError(f"the connection failed: {error}") from None
        return {
            "first_write_ms": round(first_s * 1_000, 1),
            "first_write_cpu_ms": round(cpu_ns / 1_000_000, 1),
            "all_partitions_ms": round(all_s * 1_000, 1),
            "acknowledged": acknowledged,
            "acknowledged_mb": round(acknowledged * self._kind.value_bytes / MEGABYTE, 1),
            "journal_files_mb": round(journal_bytes / MEGABYTE, 1),
        }

    def records(self) -> Iterator[tuple[int, int, int]]:
        """Partition, offset and number of every record there is."""
        from confluent_kafka import Consumer, TopicPartition

        settings = {"group_id": "judge", "enable_auto_commit": False, "queued_max_messages_kbytes": 64 << 10}
        consumer: Any = Consumer(self.endpoint.settings(**settings))
        left = Peer(self.victim.name, self.endpoint).end_offsets(TOPIC)
        try:
            consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(self._partitions)])
            while left:
                messages = consumer.consume(min(READ_RECORDS, left), READ_SECONDS)
                if not messages:
                    raise ClientError(f"{left} records could not be read within {READ_SECONDS:g} s")
                left -= len(messages)
                for message in messages:
                    if message.error() is not None:
                        raise ClientError(f"a record could not be read: {message.error()}")
                    yield message.partition(), message.offset(), _NUMBER.unpack_from(message.value())[0]
        finally:
            consumer.close()

    def stop(self) -> None:
        self.victim.stop(self._process)

    def _kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def _await(self, accepts: Callable[[], bool]) -> None:
        deadline = time.perf_counter() + START_SECONDS
        while True:
            try:
                if accepts():
                    return
            except (ClientError, OSError):
                pass
            if time.perf_counter() > deadline or self._process.poll() is not None:
                raise ClientError(f"{self.victim.name}: no write was accepted after the start")
            time.sleep(LOOK_SECONDS)


def recovery(run: Comparison) -> None:
    """Kill each side so many times, in turns, and check what is left at the end."""
    for load in LOADS:
        kills = run.kills if load.kills_max is None else min(run.kills, load.kills_max)
        with ExitStack() as stack:
            brokers = {}
            for victim in [*_trees(run, stack), *_kafka(run, stack)]:
                print(f"recovery: starting {victim.name}", file=sys.stderr, flush=True)
                brokers[victim.name] = KilledBroker(victim, load, run.seconds)
                stack.callback(brokers[victim.name].stop)
            for number in range(kills):
                sides = {name: one for name, one in brokers.items() if number < KILLS_MAX.get(name, kills)}
                this_time = range(number, number + 1)
                run.take(f"kill -9, {load.name}", sides, KilledBroker.kill_and_start, this_time)
            run.take(f"kept, {load.name}", brokers, partial(_check, run), range(1))


def _trees(run: Comparison, stack: ExitStack) -> Iterator[Victim]:
    for name, tree in run.trees.items():
        root = stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-kill-", dir=run.directory))
        port, data_dir = free_port(), Path(root, "data")
        start = partial(launch, data_dir, f"127.0.0.1:{port}", settings=[EVERY], tree=tree)
        yield Victim(name, start, stop, port, data_dir)


def _kafka(run: Comparison, stack: ExitStack) -> Iterator[Victim]:
    if not run.with_kafka:
        return
    try:
        place = stack.enter_context(installed(run.directory))
    except PeerUnavailable as why:
        run.without_kafka(why)
        return
    yield Victim(KAFKA, place.start, stop_kafka, place.port, place.root / "data")


def _check(run: Comparison, broker: KilledBroker) -> Figures:
    """Every record against what was acknowledged; an anomaly is a failure of the run."""
    acknowledgements = broker.load.acknowledgements
    found = asdict(acknowledgements.compare(broker.records()))
    if any(found.values()):
        run.failures.append(f"{broker.victim.name}: {found}")
    return {"acknowledged": acknowledgements.count, **found}
