"""From the start of the process to the first accepted Produce: on nothing, and on much."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.peers.kafka import free_port, installed
from benchmarks.peers.kafka import stop as stop_kafka
from penstock.cli.bench.report import MEGABYTE, Figures
from penstock.cli.bench.scenarios import usage_of
from penstock.cli.child import stop
from penstock.client import ClientError, Endpoint
from penstock.client.load import ProduceLoad, flood, open_connections, publish, publish_frames
from penstock.core.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

START_SECONDS = 120.0
FILL_SECONDS = 900.0
FILL_RECORD_BYTES = 1_000
FILL_CHUNK = 1_000_000
TOPIC = "penstock-bench-start"

Start = Callable[[], "subprocess.Popen[bytes]"]


def start_penstock(directory: str | None, gigabytes: float) -> Figures:
    with tempfile.TemporaryDirectory(prefix="penstock-start-", dir=directory) as root:
        port = free_port()
        doors = [
            "--kafka",
            f"127.0.0.1:{port}",
            "--http",
            "127.0.0.1:0",
            "--grpc",
            "127.0.0.1:0",
            "--metrics",
            "127.0.0.1:0",
        ]
        command = [sys.executable, "-m", "penstock.cli", "up", "--data-dir", f"{root}/data", *doors]

        def start() -> "subprocess.Popen[bytes]":
            return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=root)

        return _starts(start, stop, port, gigabytes)


def start_kafka(directory: str | None, gigabytes: float) -> Figures:
    with installed(directory) as place:
        return _starts(place.start, stop_kafka, place.port, gigabytes)


def _starts(
    start: Start, end: Callable[["subprocess.Popen[bytes]"], None], port: int, gigabytes: float
) -> Figures:
    process, empty_ms = _first_accepted(start, port)
    figures: Figures = {"start_empty_ms": round(empty_ms, 1)}
    try:
        time.sleep(2)
        figures["idle_rss_mb"] = round(usage_of(process.pid).rss_bytes / MEGABYTE, 1)
        if gigabytes:
            _fill(port, gigabytes)
            figures["full_rss_mb"] = round(usage_of(process.pid).rss_bytes / MEGABYTE, 1)
            end(process)
            process, figures["start_full_ms"] = _first_accepted(start, port)
            process.kill()
            process.wait()
            process, figures["start_killed_ms"] = _first_accepted(start, port)
    finally:
        end(process)
    return figures


def _first_accepted(start: Start, port: int) -> "tuple[subprocess.Popen[bytes], float]":
    began = time.perf_counter_ns()
    process = start()
    deadline = time.perf_counter() + START_SECONDS
    while not _accepts(port):
        if time.perf_counter() > deadline or process.poll() is not None:
            process.kill()
            process.wait()
            raise ClientError(f"no Produce was accepted within {START_SECONDS:.0f} s of the start")
        time.sleep(0.005)
    return process, round((time.perf_counter_ns() - began) / 1e6, 1)


def _accepts(port: int) -> bool:
    try:
        connection = open_connections(("127.0.0.1", port), 1)[0]
    except (ClientError, OSError):
        return False
    try:
        connection.ask(
            MetadataRequest(topics=(MetadataRequestTopic(name=TOPIC),), allow_auto_topic_creation=True)
        )
        return (
            len(publish([connection], publish_frames(connection, TOPIC, 1, 100, 1), 1, 10).latencies_ns) == 1
        )
    except (ClientError, OSError):
        return False
    finally:
        connection.close()


def _fill(port: int, gigabytes: float) -> None:
    left = int(gigabytes * 1e9 / FILL_RECORD_BYTES)
    endpoint = Endpoint(f"127.0.0.1:{port}")
    while left > 0:
        flood(
            endpoint,
            TOPIC,
            ProduceLoad(min(left, FILL_CHUNK), FILL_RECORD_BYTES, partition=0, seconds_max=FILL_SECONDS),
        )
        left -= FILL_CHUNK


def room_for(directory: str | None, gigabytes: float) -> bool:
    """Whether the disk can take it twice over; a full disk would be everybody's problem."""
    about = os.statvfs(Path(directory or tempfile.gettempdir()))
    return about.f_bavail * about.f_frsize > 2 * gigabytes * 1e9
