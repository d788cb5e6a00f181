"""A work queue beside others: publish, and receive with acknowledgement, in batches, in one run.

    python -m benchmarks.work_queues [--messages N] [--batch N] [--bytes N] [--rounds N] [--json F]

Penstock is asked on its Kafka port, by `penstock.client.cluster`; Redis Streams (XADD, XREADGROUP, XACK),
NATS JetStream (publish, pull consumer, one acknowledgement per message) and RabbitMQ (durable queue,
persistent messages, publisher confirms, one acknowledgement per batch) by raw sockets and with bytes that are
prepared as far as possible: the client's share is larger for Penstock. The others are the Debian packages
`redis-server`, `nats-server` and `rabbitmq-server`; one that is not installed is left out, and told.

There are two runs, each with the same durability for all:

    synced      what is acknowledged was synced: `fsync every`, `appendfsync always`. JetStream cannot (2.9).
    interval    it is synced within a second or so: `fsync interval`, `everysec`; JetStream every two minutes

RabbitMQ confirms what it has synced, a few hundred messages or milliseconds at a time, in both.
Acknowledgements of Penstock and Redis are confirmed, those of JetStream and RabbitMQ are not.
"""

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import Any, Protocol

from benchmarks.amqp import AmqpQueue
from benchmarks.cluster.nodes import nodes
from penstock.cli.bench.queue_load import QueueLoad, fill, receive_and_ack
from penstock.client import Endpoint

GROUP, TOPIC = "workers", "jobs"
START_SECONDS = 60.0
# The package's own start script wants another user.
RABBITMQ = "/usr/lib/rabbitmq/bin/rabbitmq-server"
SECONDS_MAX = 600.0
SYNCED, INTERVAL = "synced", "interval"
TREE = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Load:
    """How many messages of how many bytes, and how many at a time."""

    messages: int
    batch: int
    size_bytes: int

    @property
    def batches(self) -> int:
        return self.messages // self.batch

    @property
    def value(self) -> bytes:
        return b"x" * self.size_bytes


class WorkQueue(Protocol):
    """A server that runs."""

    name: str

    def publish(self, load: Load) -> None:
        """Return when everything is acknowledged."""

    def consume(self, load: Load) -> None:
        """Receive and acknowledge everything."""


class PenstockQueue:
    """Penstock, by its own client."""

    name = "penstock"

    def __init__(self, address: tuple[str, int], partitions: int) -> None:
        self._endpoint = Endpoint(f"{address[0]}:{address[1]}")
        self._partitions = partitions

    def publish(self, load: Load) -> None:
        result = fill(self._endpoint, TOPIC, self._load(load))
        assert result.messages == load.messages

    def consume(self, load: Load) -> None:
        result = receive_and_ack(self._endpoint, TOPIC, GROUP, self._load(load))
        assert result.messages >= load.messages

    def _load(self, load: Load) -> QueueLoad:
        return QueueLoad(
            load.messages, load.batch, load.size_bytes, self._partitions, seconds_max=SECONDS_MAX
        )


class RedisStream:
    """Redis Streams over a raw socket, pipelined."""

    name = "redis"

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._input = self._socket.makefile("rb", buffering=1 << 20)
        self._call(b"XGROUP", b"CREATE", TOPIC.encode(), GROUP.encode(), b"0", b"MKSTREAM")

    def publish(self, load: Load) -> None:
        one = _resp(b"XADD", TOPIC.encode(), b"*", b"v", load.value)
        batch = one * load.batch
        ahead = 0
        for _ in range(load.batches):
            self._socket.sendall(batch)
            ahead += 1
            if ahead > 8:
                self._skip(load.batch)
                ahead -= 1
        self._skip(ahead * load.batch)

    def consume(self, load: Load) -> None:
        receive = _resp(
            *b"XREADGROUP GROUP".split(),
            GROUP.encode(),
            b"worker-0",
            b"COUNT",
            str(load.batch).encode(),
            b"STREAMS",
            TOPIC.encode(),
            b">",
        )
        left = load.messages
        while left > 0:
            self._socket.sendall(receive)
            reply = self._read()
            assert isinstance(reply, list), reply
            ids = [entry[0] for entry in reply[0][1]]
            self._socket.sendall(_resp(b"XACK", TOPIC.encode(), GROUP.encode(), *ids))
            self._read()
            left -= len(ids)

    def _call(self, *words: bytes) -> None:
        self._socket.sendall(_resp(*words))
        self._read()

    def _skip(self, count: int) -> None:
        for _ in range(count):
            self._read()

    def _read(self) -> Any:
        line = self._input.readline()
        kind, rest = line[:1], line[1:-2]
        if kind == b"$":
            return None if rest == b"-1" else self._input.read(int(rest) + 2)[:-2]
        if kind == b"*":
            return [self._read() for _ in range(int(rest))]
        if kind == b"-":
            raise RuntimeError(rest.decode())
        return int(rest) if kind == b":" else rest


def _resp(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


class JetStream:
    """NATS JetStream over a raw socket, pipelined."""

    name = "nats"

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._input = self._socket.makefile("rb", buffering=1 << 20)
        self._input.readline()
        self._send(b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true}\r\n')
        self._send(b"SUB inbox.> 1\r\n")
        self._ask(b"$JS.API.STREAM.CREATE.jobs", {"name": "jobs", "subjects": ["jobs"], "storage": "file"})
        settings = {"durable_name": GROUP, "ack_policy": "explicit", "max_ack_pending": 100_000}
        create = {"stream_name": "jobs", "config": settings}
        self._ask(b"$JS.API.CONSUMER.DURABLE.CREATE.jobs.workers", create)

    def publish(self, load: Load) -> None:
        one = b"PUB jobs inbox.p %d\r\n%s\r\n" % (load.size_bytes, load.value)
        batch = one * load.batch
        ahead = 0
        for _ in range(load.batches):
            self._send(batch)
            ahead += 1
            if ahead > 8:
                self._skip(load.batch)
                ahead -= 1
        self._skip(ahead * load.batch)

    def consume(self, load: Load) -> None:
        wanted = json.dumps({"batch": load.batch, "expires": 5_000_000_000}).encode()
        pull = b"PUB $JS.API.CONSUMER.MSG.NEXT.jobs.workers inbox.c %d\r\n%s\r\n" % (len(wanted), wanted)
        left = load.messages
        while left > 0:
            self._send(pull)
            acknowledgements = []
            for _ in range(min(load.batch, left)):
                reply_to, _content = self._message()
                acknowledgements.append(b"PUB %s 4\r\n+ACK\r\n" % reply_to)
            self._send(b"".join(acknowledgements))
            left -= len(acknowledgements)
        # A reply to this means that the acknowledgements before it were read.
        self._ask(b"$JS.API.CONSUMER.INFO.jobs.workers", {})

    def _send(self, content: bytes) -> None:
        self._socket.sendall(content)

    def _ask(self, subject: bytes, question: Mapping[str, object]) -> None:
        content = json.dumps(question).encode()
        self._send(b"PUB %s inbox.a %d\r\n%s\r\n" % (subject, len(content), content))
        reply = self._message()[1]
        assert b'"error"' not in reply, reply

    def _skip(self, count: int) -> None:
        for _ in range(count):
            self._message()

    def _message(self) -> tuple[bytes, bytes]:
        while True:
            line = self._input.readline()
            words = line.split()
            if words[0] == b"MSG":
                content = self._input.read(int(words[-1]) + 2)[:-2]
                return (words[3] if len(words) == 5 else b""), content
            if words[0] == b"HMSG":
                raise RuntimeError(self._input.read(int(words[-1]) + 2).decode())
            if words[0] == b"PING":
                self._send(b"PONG\r\n")
            elif words[0] == b"-ERR":
                raise RuntimeError(line.decode())


class RabbitQueue:
    """A durable queue of RabbitMQ."""

    name = "rabbitmq"

    def __init__(self, port: int) -> None:
        self._queue = AmqpQueue(("127.0.0.1", port), TOPIC)

    def publish(self, load: Load) -> None:
        for _ in range(load.batches):
            self._queue.publish(load.value, load.batch)
            self._queue.await_confirmed(8 * load.batch)
        self._queue.await_confirmed(0)

    def consume(self, load: Load) -> None:
        self._queue.consume(load.messages, load.batch)


@contextmanager
def penstock_queue(mode: str, partitions: int) -> Iterator[WorkQueue]:
    fsync = "every" if mode == SYNCED else "interval"
    settings = [f"topics.partitions={partitions}", f"storage.fsync.mode={fsync}"]
    with nodes(1, settings=settings, tree=TREE) as running:
        host, port = running.bootstrap.split(",", 1)[0].rsplit(":", 1)
        yield PenstockQueue((host, int(port)), partitions)


@contextmanager
def redis_stream(mode: str) -> Iterator[WorkQueue]:
    port = _free_port()
    fsync = "always" if mode == SYNCED else "everysec"
    options = f"--port {port} --bind 127.0.0.1 --appendonly yes --appendfsync {fsync} --save".split()
    with _server(["redis-server", *options, ""], port):
        yield RedisStream(port)


@contextmanager
def jetstream() -> Iterator[WorkQueue]:
    port = _free_port()
    with tempfile.TemporaryDirectory() as directory:
        settings = Path(directory) / "nats.conf"
        settings.write_text(
            f'port: {port}\nhost: "127.0.0.1"\njetstream {{ store_dir: "{directory}/store" }}\n'
        )
        with _server(["nats-server", "-c", str(settings)], port):
            yield JetStream(port)


@contextmanager
def rabbit_queue() -> Iterator[WorkQueue]:
    port, epmd = _free_port(), str(_free_port())
    with tempfile.TemporaryDirectory() as directory:
        environment = {
            "HOME": directory,
            "RABBITMQ_NODENAME": "penstock-bench@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(port),
            "RABBITMQ_DIST_PORT": str(_free_port()),
            "RABBITMQ_BASE": directory,
            "RABBITMQ_MNESIA_BASE": f"{directory}/mnesia",
            "RABBITMQ_LOG_BASE": f"{directory}/log",
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{directory}/enabled_plugins",
            "RABBITMQ_CONFIG_FILE": f"{directory}/rabbitmq",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            "ERL_EPMD_PORT": epmd,
            "ERL_EPMD_ADDRESS": "127.0.0.1",
        }
        try:
            with _server([RABBITMQ], port, environment):
                yield RabbitQueue(port)
        finally:
            subprocess.run(["epmd", "-port", epmd, "-kill"], capture_output=True, check=False)


@contextmanager
def _server(
    command: list[str], port: int, environment: Mapping[str, str] = MappingProxyType({})
) -> Iterator[None]:
    with tempfile.TemporaryDirectory() as directory:
        running = subprocess.Popen(
            command,
            cwd=directory,
            env={**os.environ, **environment},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            _await(port, running)
            yield
        finally:
            running.terminate()
            running.wait()


def _await(port: int, running: "subprocess.Popen[bytes]") -> None:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until and running.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise SystemExit("the server does not listen")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _seconds(work: Callable[[Load], None], load: Load) -> float:
    start = time.perf_counter()
    work(load)
    return time.perf_counter() - start


def measure(queues: list[WorkQueue], load: Load, rounds: int) -> dict[str, dict[str, int]]:
    """Messages per second by server and by what is done: medians over the rounds."""
    taken: dict[str, dict[str, list[float]]] = {}
    for number in range(rounds):
        # Each goes first once: all share the machine's good and bad moments.
        turn = number % len(queues)
        for queue in queues[turn:] + queues[:turn]:
            figures = taken.setdefault(queue.name, {"publish": [], "receive_ack": []})
            figures["publish"].append(load.messages / _seconds(queue.publish, load))
            figures["receive_ack"].append(load.messages / _seconds(queue.consume, load))
    return {
        name: {what: round(median(values)) for what, values in figures.items()}
        for name, figures in taken.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--batch", type=int, default=500)
    parser.add_argument("--bytes", type=int, default=200)
    parser.add_argument("--partitions", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    load = Load(given.messages // given.batch * given.batch, given.batch, given.bytes)
    found = {mode: run(mode, load, given.partitions, given.rounds) for mode in (SYNCED, INTERVAL)}
    for mode, figures_by_name in found.items():
        for name, figures in figures_by_name.items():
            print(f"{mode:9} {name:9} " + "  ".join(f"{what} {value:,}/s" for what, value in figures.items()))
    if given.json is not None:
        given.json.write_text(json.dumps({"load": vars(given) | {"json": None}, "figures": found}, indent=1))


def run(mode: str, load: Load, partitions: int, rounds: int) -> dict[str, dict[str, int]]:
    """The figures of all servers with one durability."""
    with ExitStack() as stack:
        queues = [stack.enter_context(penstock_queue(mode, partitions))]
        if _is_installed("redis-server"):
            queues.append(stack.enter_context(redis_stream(mode)))
        if mode == INTERVAL and _is_installed("nats-server"):
            queues.append(stack.enter_context(jetstream()))
        if _is_installed("rabbitmq-server", RABBITMQ):
            queues.append(stack.enter_context(rabbit_queue()))
        return measure(queues, load, rounds)


def _is_installed(package: str, program: str | None = None) -> bool:
    found = shutil.which(program or package) is not None
    if not found:
        print(f"{package} is not installed (a Debian package): left out", file=sys.stderr)
    return found


if __name__ == "__main__":
    main()
