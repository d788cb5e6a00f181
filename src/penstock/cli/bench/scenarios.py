"""The measurements: a load on a broker, and its figures."""

import base64
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from penstock.cli.bench.delay_load import DelayLoad, DelayReport, measure
from penstock.cli.bench.gateway_load import GatewayServer
from penstock.cli.bench.report import MEGABYTE, Figures, LoadResult, percentiles_us, rates
from penstock.cli.broker_options import endpoint
from penstock.cli.child import throw_away_broker
from penstock.client import ClientError, Endpoint, TopicAdmin
from penstock.client.connection import security_of
from penstock.client.load import (
    ProduceLoad,
    drain,
    fetch_empty,
    flood,
    mock_endpoint,
    open_connections,
    publish,
    publish_frames,
    send_stamped,
)
from penstock.client.login_file import login_environment, login_options
from penstock.core.model import PenstockError
from penstock.runtime.loop import MachineEntropy

APPEND_BYTES = 1 << 20
APPENDS = 256
SYNC_BYTES = 4_096
SYNCS = 500
ROUND_TRIPS = 2_000
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
PREFILL_RECORDS = 50_000
PREFILL_BYTES = 1_000
ARRIVAL_LOOKS_MAX = 300
ARRIVAL_LOOK_S = 0.1
API_KEY_VARIABLE = "PENSTOCK_API_KEY"
GATEWAY_PROCESS = b"penstock.server.gateway.process"


def client_limit(load: ProduceLoad) -> Figures:
    """What librdkafka does against the broker in its own process."""
    flooded = flood(mock_endpoint(), "limit", load)
    return rates(flooded.records, load.value_bytes, flooded.elapsed_ns)


def disk_limits(directory: str) -> dict[str, Figures]:
    """Appending 1 MB at a time to a new file, and syncing 4 KB at a time."""
    path = Path(directory, f"penstock-limit-{os.getpid()}")
    try:
        return {"raw_append_1mb": _appends(path), "raw_fdatasync_4kb": _syncs(path)}
    finally:
        path.unlink(missing_ok=True)


def _appends(path: Path) -> Figures:
    content = os.urandom(APPEND_BYTES)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        began = time.perf_counter_ns()
        for _ in range(APPENDS):
            os.write(descriptor, content)
        elapsed_ns = time.perf_counter_ns() - began
    finally:
        os.close(descriptor)
    return {"mb_per_s": round(APPENDS * APPEND_BYTES / MEGABYTE / (elapsed_ns / 1e9), 1)}


def _syncs(path: Path) -> Figures:
    content = os.urandom(SYNC_BYTES)
    took = []
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        for _ in range(SYNCS):
            os.write(descriptor, content)
            began = time.perf_counter_ns()
            os.fdatasync(descriptor)
            took.append(time.perf_counter_ns() - began)
    finally:
        os.close(descriptor)
    return percentiles_us(took)


def socket_limit() -> Figures:
    """A request and a response of a hundred bytes between two sockets, with nothing behind them.

    The other side is a thread of this process: what it costs is Python's, as in a broker.
    """
    server = socket.create_server(("127.0.0.1", 0))
    echo = threading.Thread(target=_echo, args=(server,), daemon=True)
    echo.start()
    took = []
    with socket.create_connection(server.getsockname()) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        message = b"x" * 100
        for _ in range(ROUND_TRIPS):
            began = time.perf_counter_ns()
            connection.sendall(message)
            connection.recv(4_096)
            took.append(time.perf_counter_ns() - began)
    echo.join(5)
    server.close()
    return percentiles_us(took)


def _echo(server: socket.socket) -> None:
    connection, _ = server.accept()
    with connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while received := connection.recv(4_096):
            connection.sendall(received)


class ResourceUsage(NamedTuple):
    """CPU time since the start, and memory that is resident now."""

    cpu_ns: int
    rss_bytes: int


def usage_of(pid: int) -> ResourceUsage:
    """The usage of a process with all below it (a broker has helpers); ended ones count nothing."""
    cpu_ns = rss_bytes = 0
    for one in [pid, *_children(pid)]:
        try:
            resident = Path(f"/proc/{one}/statm").read_text().split()[1]
            cpu_ns += _cpu_ns(one)
        except (OSError, IndexError):
            continue
        rss_bytes += int(resident) * PAGE_BYTES
    return ResourceUsage(cpu_ns, rss_bytes)


def _cpu_ns(pid: int) -> int:
    """The scheduler's own account, thread by thread.

    `stat` counts who runs when the clock ticks: a process that wakes up with the ticks, as one
    that waits for a disk does, seems to use several times what it does.
    """
    try:
        return sum(int(path.read_text().split()[0]) for path in Path(f"/proc/{pid}/task").glob("*/schedstat"))
    except OSError:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * 1_000_000_000 // TICKS_PER_SECOND


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for listing in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            direct = [int(word) for word in listing.read_text().split()]
        except OSError:
            continue
        for child in direct:
            found += [child, *_children(child)]
    return found


class ProcessorTime(NamedTuple):
    """CPU time of a node since its start: the broker with its helpers, and its gateway."""

    broker_ns: int
    gateway_ns: int

    def since(self, before: "ProcessorTime", messages: int) -> Figures:
        """What each message cost, in microseconds."""
        divisor = 1_000 * max(1, messages)
        return {
            "broker_cpu_us_per_message": round((self.broker_ns - before.broker_ns) / divisor, 2),
            "gateway_cpu_us_per_message": round((self.gateway_ns - before.gateway_ns) / divisor, 2),
        }


def processor_time_of(pid: int) -> ProcessorTime:
    """The processor time of a node whose process is known."""
    broker_ns = gateway_ns = 0
    for one in [pid, *_children(pid)]:
        try:
            is_gateway = GATEWAY_PROCESS in Path(f"/proc/{one}/cmdline").read_bytes()
            used_ns = _cpu_ns(one)
        except OSError:
            continue
        if is_gateway:
            gateway_ns += used_ns
        else:
            broker_ns += used_ns
    return ProcessorTime(broker_ns, gateway_ns)


class InvalidPeer(PenstockError):
    """A peer that is not written as it must be."""


@dataclass(frozen=True, slots=True)
class BenchTarget:
    """A broker to measure; with a process id, its CPU and memory can be measured."""

    name: str
    endpoint: Endpoint
    pid: int | None = None
    start_ms: float | None = None
    idle_rss_mb: float | None = None
    replication: int = 1

    def usage(self) -> ResourceUsage | None:
        return None if self.pid is None else usage_of(self.pid)

    def load(self, load: Callable[[], LoadResult], value_bytes: int) -> Figures:
        """The figures of a load, with what it cost the node where its process is known."""
        before = None if self.pid is None else processor_time_of(self.pid)
        result = load()
        figures = result.figures(value_bytes)
        if before is not None and self.pid is not None:
            figures |= processor_time_of(self.pid).since(before, result.messages)
        return figures

    @contextmanager
    def topic(self, partitions: int = 1, configs: dict[str, str] | None = None) -> Iterator[str]:
        """A topic for one measurement, deleted after it."""
        name = f"penstock-bench-{MachineEntropy().bytes(6).hex()}"
        topics = TopicAdmin(self.endpoint)
        topics.create(name, partitions, self.replication, configs or {})
        try:
            yield name
        finally:
            TopicAdmin(self.endpoint).delete(name)

    def end_offsets(self, topic: str) -> int:
        """How many records a topic has taken, over all partitions."""
        return sum(one.end_offset or 0 for one in TopicAdmin(self.endpoint).describe(topic).partitions)


@contextmanager
def target(
    bootstrap: str | None, pid: int | None, settings: Sequence[str], directory: str | None
) -> Iterator[BenchTarget]:
    """The broker that was named, or else one of our own."""
    if bootstrap is not None:
        yield BenchTarget("broker", endpoint(bootstrap, None), pid)
        return
    with throw_away_broker(settings, directory) as child:
        idle_rss_mb = usage_of(child.pid).rss_bytes / MEGABYTE
        yield BenchTarget("penstock", Endpoint(child.bootstrap), child.pid, child.start_ns / 1e6, idle_rss_mb)


@contextmanager
def gateway_target(
    url: str | None, pid: int | None, settings: Sequence[str], directory: str | None, *, is_grpc: bool = False
) -> Iterator[tuple[BenchTarget, GatewayServer]]:
    """A server of a gateway, that was named or is our own, and the broker behind it."""
    if url is not None:
        login = login_options(os.environ)
        server = GatewayServer.at(url, authorization(os.environ, login), login.get("ssl.ca.location", ""))
        yield BenchTarget("gateway", Endpoint(server.name), pid), server
        return
    with throw_away_broker(settings, directory) as child:
        idle_rss_mb = usage_of(child.pid).rss_bytes / MEGABYTE
        server = GatewayServer.at(child.grpc if is_grpc else child.http)
        started = child.start_ns / 1e6
        yield BenchTarget("penstock", Endpoint(child.bootstrap), child.pid, started, idle_rss_mb), server


def authorization(environment: Mapping[str, str], login: Mapping[str, str]) -> str:
    """The header by which REST and gRPC know who is calling: an API key, or else a user's password."""
    key = environment.get(API_KEY_VARIABLE, "").strip()
    if key:
        return f"Bearer {key}"
    user, password = login.get("sasl.username"), login.get("sasl.password")
    if not user or not password:
        return ""
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def parse_peer(text: str) -> BenchTarget:
    """Read `host:port`, `name=host:port` or `name=host:port@pid`."""
    name, equals, rest = text.partition("=")
    address, at, pid = (rest if equals else text).partition("@")
    if not address or (at and not pid.isdigit()):
        raise InvalidPeer(f"--peer {text}: expected name=host:port or name=host:port@pid")
    if at and not os.path.exists(f"/proc/{pid}"):
        raise InvalidPeer(f"--peer {text}: there is no process {pid}")
    return BenchTarget(name if equals else address, Endpoint(address), int(pid) if at else None)


@dataclass(frozen=True, slots=True)
class RoundTripPlan:
    """Depth-1 publishing: how many requests, of what, over what, and with whom beside them."""

    count: int = 5_000
    value_bytes: int = 100
    acks: int = 1
    partitions: int = 1
    connections: int = 1
    readers: int = 0
    seconds_max: float = 60


def _arrived(target: BenchTarget, topic: str, wanted: int) -> int:
    """How many records can be read. With acks=1 the last ones are on their way to other replicas."""
    for _ in range(ARRIVAL_LOOKS_MAX):
        arrived = target.end_offsets(topic)
        if arrived >= wanted:
            break
        time.sleep(ARRIVAL_LOOK_S)
    return arrived


def produce(target: BenchTarget, load: ProduceLoad, partitions: int = 1) -> Figures:
    """How fast librdkafka sends, or how it does at a rate; every record must have arrived."""
    with target.topic(partitions) as topic:
        before = target.usage()
        flooded = flood(target.endpoint, topic, load)
        after = target.usage()
        arrived = _arrived(target, topic, load.records)
    if arrived != load.records:
        raise ClientError(f"{load.records} records were acknowledged, {arrived} are in the topic")
    return {
        **rates(flooded.records, load.value_bytes, flooded.elapsed_ns),
        **percentiles_us(flooded.latencies_ns),
        "client_cpu_s": round(flooded.client_cpu_ns / 1e9, 3),
        "requests": flooded.requests,
        **used(before, after, flooded.requests, "produce"),
    }


def consume(target: BenchTarget, load: ProduceLoad, partitions: int = 1) -> Figures:
    """How fast librdkafka reads a topic from its beginning, after it was filled."""
    with target.topic(partitions) as topic:
        flood(target.endpoint, topic, load)
        before = target.usage()
        drained = drain(target.endpoint, topic, range(partitions), load.records, load.seconds_max)
        after = target.usage()
    if drained.records != load.records:
        raise ClientError(f"{load.records} records were sent, {drained.records} came back")
    return {
        **rates(drained.records, load.value_bytes, drained.elapsed_ns),
        "first_ms": round(drained.first_ns / 1e6, 1),
        "client_cpu_s": round(drained.client_cpu_ns / 1e9, 3),
        **used(before, after, drained.value_bytes // MEGABYTE, "mb"),
    }


def latency(target: BenchTarget, plan: RoundTripPlan) -> Figures:
    """One Produce of one record after the other, on plain sockets."""
    address = target.endpoint.addresses()[0]
    with target.topic(plan.partitions) as topic, busy(target, plan.readers, plan.seconds_max):
        connections = open_connections(address, plan.connections, security_of(target.endpoint))
        try:
            frames = publish_frames(connections[0], topic, plan.partitions, plan.value_bytes, plan.acks)
            before = target.usage()
            trips = publish(connections, frames, plan.count, plan.seconds_max)
            after = target.usage()
        finally:
            for connection in connections:
                connection.close()
    done = len(trips.latencies_ns)
    return {
        "requests": done,
        "requests_per_s": round(done / (trips.elapsed_ns / 1e9)),
        **percentiles_us(trips.latencies_ns),
        **used(before, after, done, "produce"),
    }


def empty_fetch(target: BenchTarget, count: int) -> Figures:
    """One Fetch without data after the other."""
    with target.topic() as topic:
        connection = open_connections(target.endpoint.addresses()[0], 1, security_of(target.endpoint))[0]
        try:
            before = target.usage()
            trips = fetch_empty(connection, topic, 0, count)
            after = target.usage()
        finally:
            connection.close()
    return {"requests": count, **percentiles_us(trips.latencies_ns), **used(before, after, count, "fetch")}


def end_to_end(
    target: BenchTarget,
    records: int,
    rate: int,
    value_bytes: int,
    seconds_max: float,
    *,
    acks: str = "1",
    warm_up: int = 0,
) -> Figures:
    """From handing a record to one librdkafka to getting it from another, in another process.

    The first `warm_up` records are sent, and not counted.
    """
    with target.topic() as topic:
        waiter = subprocess.Popen(
            [
                *(sys.executable, "-m", "penstock.cli.bench.waiter"),
                *(target.endpoint.bootstrap, topic, str(records), str(seconds_max)),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=login_environment(os.environ),
        )
        try:
            assert waiter.stdout is not None
            if waiter.stdout.readline() != "ready\n":
                raise ClientError(f"the waiting consumer failed: {waiter.communicate()[1].strip()[-200:]}")
            late_ns = send_stamped(target.endpoint, topic, records, rate, value_bytes, acks)
            answer, complaint = waiter.communicate(timeout=seconds_max + 10)
        except subprocess.TimeoutExpired:
            raise ClientError(f"the waiting consumer did not end within {seconds_max} s") from None
        finally:
            waiter.kill()
            waiter.wait()
    if waiter.returncode != 0:
        raise ClientError(f"the waiting consumer failed: {complaint.strip()[-200:]}")
    ages: list[int] = json.loads(answer)
    return {
        "messages_per_s": rate,
        "sender_late_ms": round(late_ns / 1e6, 2),
        **percentiles_us(ages[warm_up:]),
    }


def delayed(target: BenchTarget, load: DelayLoad) -> Figures:
    """How late messages are that were to be published at a time; none may be early, or come twice."""
    found: list[DelayReport] = []

    def run() -> LoadResult:
        began: list[int] = []
        found.append(measure(target.endpoint, topic, load, lambda: began.append(time.perf_counter_ns())))
        elapsed_ns = time.perf_counter_ns() - began[0]
        cpu_ns = found[0].sent.cpu_ns + found[0].arrivals.cpu_ns
        return LoadResult(load.records, [], elapsed_ns, cpu_ns)

    with target.topic(load.partitions) as topic:
        figures = target.load(run, load.value_bytes)
    arrivals = found[0].arrivals
    early_ms = -min(arrivals.lateness_ms)
    if early_ms > 0:
        raise ClientError(f"a message was published {early_ms:g} ms too early")
    if arrivals.duplicates:
        raise ClientError(f"{arrivals.duplicates} messages were published twice")
    late_ns = [int(each * 1e6) for each in arrivals.lateness_ms]
    waits_ns = [int(each * 1e6) for each in found[0].waits_ms]
    return {
        **figures,
        **percentiles_us(late_ns, "late_"),
        # Of small requests meanwhile.
        **percentiles_us(waits_ns, "wait_"),
        "sender_late_ms": round(found[0].sent.behind_ms, 2),
    }


@contextmanager
def busy(target: BenchTarget, readers: int, seconds: float) -> Iterator[None]:
    """Keep the broker's loop full of Fetch requests meanwhile."""
    if not readers:
        yield
        return
    with target.topic() as topic:
        flood(target.endpoint, topic, ProduceLoad(PREFILL_RECORDS, PREFILL_BYTES, partition=0))
        host, port = target.endpoint.addresses()[0]
        command = [sys.executable, "-m", "penstock.cli.bench.fetcher", host, str(port), topic, str(seconds)]
        running = [
            subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=login_environment(os.environ),
            )
            for _ in range(readers)
        ]
        try:
            for one in running:
                assert one.stdout is not None
                if one.stdout.readline() != b"reading\n":
                    raise ClientError("a reader that should keep the broker busy did not start")
            yield
        finally:
            for one in running:
                one.kill()
                one.wait()
                assert one.stdout is not None
                one.stdout.close()


def used(before: ResourceUsage | None, after: ResourceUsage | None, count: int, what: str) -> Figures:
    """What the broker used meanwhile, where its process is known."""
    if before is None or after is None:
        return {}
    cpu_ns = after.cpu_ns - before.cpu_ns
    return {
        "broker_cpu_s": round(cpu_ns / 1e9, 3),
        f"broker_cpu_us_per_{what}": round(cpu_ns / 1_000 / max(1, count), 1),
        "broker_rss_mb": round(after.rss_bytes / MEGABYTE, 1),
    }
