"""The measurements: a load on a broker, and its figures."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from penstock.cli.bench.figures import MEGABYTE, Figures, percentiles_us, rates
from penstock.cli.bench.targets import Target
from penstock.cli.bench.usage import Usage
from penstock.client import ClientError
from penstock.client.load import Load, drain, fetch_empty, flood, publish, publish_frames, send_stamped
from penstock.client.load.roundtrip import open_connections

PREFILL_RECORDS = 50_000
PREFILL_BYTES = 1_000
ARRIVAL_LOOKS_MAX = 300
ARRIVAL_LOOK_S = 0.1


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


def _arrived(target: Target, topic: str, wanted: int) -> int:
    """How many records can be read. With acks=1 the last ones are on their way to other replicas."""
    for _ in range(ARRIVAL_LOOKS_MAX):
        arrived = target.end_offsets(topic)
        if arrived >= wanted:
            break
        time.sleep(ARRIVAL_LOOK_S)
    return arrived


def produce(target: Target, load: Load, partitions: int = 1) -> Figures:
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


def consume(target: Target, load: Load, partitions: int = 1) -> Figures:
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


def latency(target: Target, plan: RoundTripPlan) -> Figures:
    """One Produce of one record after the other, on plain sockets."""
    address = target.endpoint.addresses()[0]
    with target.topic(plan.partitions) as topic, busy(target, plan.readers, plan.seconds_max):
        connections = open_connections(address, plan.connections)
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


def empty_fetch(target: Target, count: int) -> Figures:
    """One Fetch without data after the other."""
    with target.topic() as topic:
        connection = open_connections(target.endpoint.addresses()[0], 1)[0]
        try:
            before = target.usage()
            trips = fetch_empty(connection, topic, 0, count)
            after = target.usage()
        finally:
            connection.close()
    return {"requests": count, **percentiles_us(trips.latencies_ns), **used(before, after, count, "fetch")}


def end_to_end(target: Target, records: int, rate: int, value_bytes: int, seconds_max: float) -> Figures:
    """From handing a record to one librdkafka to getting it from another, in another process."""
    with target.topic() as topic:
        waiter = subprocess.Popen(
            [
                *(sys.executable, "-m", "penstock.cli.bench.waiter"),
                *(target.endpoint.bootstrap, topic, str(records), str(seconds_max)),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert waiter.stdout is not None
            if waiter.stdout.readline() != "ready\n":
                raise ClientError(f"the waiting consumer failed: {waiter.communicate()[1].strip()[-200:]}")
            late_ns = send_stamped(target.endpoint, topic, records, rate, value_bytes)
            answer, complaint = waiter.communicate(timeout=seconds_max + 10)
        except subprocess.TimeoutExpired:
            raise ClientError(f"the waiting consumer did not end within {seconds_max} s") from None
        finally:
            waiter.kill()
            waiter.wait()
    if waiter.returncode != 0:
        raise ClientError(f"the waiting consumer failed: {complaint.strip()[-200:]}")
    ages: list[int] = json.loads(answer)
    return {"messages_per_s": rate, "sender_late_ms": round(late_ns / 1e6, 2), **percentiles_us(ages)}


@contextmanager
def busy(target: Target, readers: int, seconds: float) -> Iterator[None]:
    """Keep the broker's loop full of Fetch requests meanwhile."""
    if not readers:
        yield
        return
    with target.topic() as topic:
        flood(target.endpoint, topic, Load(PREFILL_RECORDS, PREFILL_BYTES, partition=0))
        host, port = target.endpoint.addresses()[0]
        command = [sys.executable, "-m", "penstock.cli.bench.fetcher", host, str(port), topic, str(seconds)]
        running = [
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
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


def used(before: Usage | None, after: Usage | None, count: int, what: str) -> Figures:
    """What the broker used meanwhile, where its process is known."""
    if before is None or after is None:
        return {}
    cpu_ns = after.cpu_ns - before.cpu_ns
    return {
        "broker_cpu_s": round(cpu_ns / 1e9, 3),
        f"broker_cpu_us_per_{what}": round(cpu_ns / 1_000 / max(1, count), 1),
        "broker_rss_mb": round(after.rss_bytes / MEGABYTE, 1),
    }
