"""Many small requests in flight, so that the broker and not the round trip is measured."""

import selectors
import socket
import time
from collections.abc import Sequence

from penstock.cli.bench.report import Figures
from penstock.cli.bench.scenarios import BenchTarget, used
from penstock.client import ClientError
from penstock.client.connection import BrokerConnection
from penstock.client.load import fetch_frame, open_connections, publish_frames

BURST = 32
RECEIVE_BYTES = 1 << 16
SECONDS_MAX = 30.0


class Pipe:
    """A connection on which equal requests are sent ahead of their answers, which are equally long."""

    def __init__(self, address: tuple[str, int], frame: bytes, answer_bytes: int) -> None:
        self.socket = socket.create_connection(address, SECONDS_MAX)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._frame = frame
        self._answer_bytes = answer_bytes
        self._received = 0

    def send(self, count: int) -> None:
        self.socket.sendall(self._frame * count)

    def receive(self) -> int:
        """Take what has come; answers how many answers that completes."""
        more = self.socket.recv(RECEIVE_BYTES)
        if not more:
            raise ClientError("the broker closed the connection")
        before = self._received // self._answer_bytes
        self._received += len(more)
        return self._received // self._answer_bytes - before

    def close(self) -> None:
        self.socket.close()


def flow(pipes: Sequence[Pipe], count: int, in_flight: int) -> tuple[int, int]:
    """Keep so many requests in flight over all pipes in turn; answers requests and nanoseconds."""
    watch = selectors.DefaultSelector()
    for pipe in pipes:
        watch.register(pipe.socket, selectors.EVENT_READ, pipe)
    began = time.perf_counter_ns()
    deadline = began + int(SECONDS_MAX * 1e9)
    sent = answered = turn = 0
    try:
        while answered < count and time.perf_counter_ns() < deadline:
            # One pipe gets bursts; many get one request each, as if each were a client of its own.
            burst = BURST if len(pipes) == 1 else 1
            while sent - answered <= in_flight - burst and sent < count:
                pipes[turn % len(pipes)].send(burst)
                sent += burst
                turn += 1
            for key, _ in watch.select(1.0):
                answered += key.data.receive()
    finally:
        watch.close()
    return answered, time.perf_counter_ns() - began


def produce_cpu(
    target: BenchTarget, count: int, value_bytes: int = 100, spread: int = 1, in_flight: int = 2 * BURST
) -> Figures:
    """CPU of the broker per Produce of one record (or one batch), over so many partitions and connections."""
    address = target.endpoint.addresses()[0]
    with target.topic(spread) as topic:
        first = open_connections(address, 1)[0]
        frames = publish_frames(first, topic, spread, value_bytes, 1)
        sizes = [len(first.exchange(frame)) + 4 for frame in frames]
        first.close()
        pipes = [Pipe(address, bytes(frame), size) for frame, size in zip(frames, sizes, strict=True)]
        return _measured(target, pipes, count, in_flight, "produce")


def fetch_cpu(target: BenchTarget, count: int) -> Figures:
    """CPU of the broker per Fetch without data."""
    address = target.endpoint.addresses()[0]
    with target.topic() as topic:
        first: BrokerConnection = open_connections(address, 1)[0]
        frame = fetch_frame(first, topic, 0)
        size = len(first.exchange(frame)) + 4
        first.close()
        return _measured(target, [Pipe(address, bytes(frame), size)], count, 2 * BURST, "fetch")


def _measured(target: BenchTarget, pipes: Sequence[Pipe], count: int, in_flight: int, what: str) -> Figures:
    try:
        flow(pipes, max(BURST, len(pipes), count // 10), in_flight)
        before = target.usage()
        done, elapsed_ns = flow(pipes, count, in_flight)
        after = target.usage()
    finally:
        for pipe in pipes:
            pipe.close()
    if done < 100:
        raise ClientError(f"{done} of {count} requests were answered within {SECONDS_MAX} s")
    return {
        "requests": done,
        "requests_per_s": round(done / (elapsed_ns / 1e9)),
        **used(before, after, done, what),
    }
