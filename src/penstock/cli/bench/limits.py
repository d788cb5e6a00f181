"""What the machine and the client can do without a broker: the yardsticks of a run."""

import os
import socket
import threading
import time
from pathlib import Path

from penstock.cli.bench.figures import MEGABYTE, Figures, percentiles_us, rates
from penstock.client.load import Load, flood, mock_endpoint

APPEND_BYTES = 1 << 20
APPENDS = 256
SYNC_BYTES = 4_096
SYNCS = 500
ROUND_TRIPS = 2_000


def client_limit(load: Load) -> Figures:
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
    """A request and an answer of a hundred bytes between two sockets, with nothing behind them.

    The other side is a thread of this process: what it costs is Python's, as in a broker.
    """
    door = socket.create_server(("127.0.0.1", 0))
    echo = threading.Thread(target=_echo, args=(door,), daemon=True)
    echo.start()
    took = []
    with socket.create_connection(door.getsockname()) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        message = b"x" * 100
        for _ in range(ROUND_TRIPS):
            began = time.perf_counter_ns()
            connection.sendall(message)
            connection.recv(4_096)
            took.append(time.perf_counter_ns() - began)
    echo.join(5)
    door.close()
    return percentiles_us(took)


def _echo(door: socket.socket) -> None:
    connection, _ = door.accept()
    with connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while received := connection.recv(4_096):
            connection.sendall(received)
