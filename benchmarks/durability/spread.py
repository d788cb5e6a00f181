"""Small batches to all partitions of a topic in turn, so many in flight that a sync round finds many written.

A Produce request carries one batch of one record, as librdkafka's do when records come one by one.
The number in flight is the same however many partitions there are, so that the load is.
"""

import selectors
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks.durability.sides import BenchTopic
from benchmarks.macro.pipelined import Pipe
from penstock.cli.bench.report import Figures, percentiles_us
from penstock.cli.bench.scenarios import used
from penstock.client import ClientError
from penstock.client.load import check_response, open_connections, publish_frames

VALUE_BYTES = 100
CONNECTIONS = 8
IN_FLIGHT = 256
BURST = IN_FLIGHT // CONNECTIONS
WARM_UP_SECONDS = 0.5
# After the last request was sent, a response is waited for this long.
DRAIN_SECONDS = 10.0
PACED_WAIT_SECONDS = 0.0005


@dataclass(slots=True)
class Spread:
    """What came of a load: how long each response took, and all of them."""

    latencies_ns: list[int] = field(default_factory=list)
    elapsed_ns: int = 0


class SpreadPipes:
    """Connections to one broker that share a turn around the partitions."""

    def __init__(self, address: tuple[str, int], frames: Sequence[bytes], response_bytes: int) -> None:
        self._frames = frames
        self._turn = 0
        self._pipes = [Pipe(address, b"", response_bytes) for _ in range(CONNECTIONS)]
        # When each request without a response was sent, by connection.
        self._sent_ns: list[deque[int]] = [deque() for _ in self._pipes]
        self._next_pipe = 0
        self._watch = selectors.DefaultSelector()
        for number, pipe in enumerate(self._pipes):
            self._watch.register(pipe.socket, selectors.EVENT_READ, number)

    def close(self) -> None:
        self._watch.close()
        for pipe in self._pipes:
            pipe.close()

    def run(self, seconds: float, rate: int | None = None) -> Spread:
        """Send for so long, at a rate or as fast as responses come, and wait for the last response."""
        found = Spread()
        began = now = time.perf_counter_ns()
        end, drained = began + int(seconds * 1e9), began + int((seconds + DRAIN_SECONDS) * 1e9)
        sent = 0
        while now < end or sent > len(found.latencies_ns):
            if now > drained:
                raise ClientError(f"{sent - len(found.latencies_ns)} requests had no response in time")
            if now < end:
                wanted = IN_FLIGHT - (sent - len(found.latencies_ns))
                if rate is not None:
                    wanted = min(wanted, int((now - began) * rate / 1e9) - sent)
                self._send(wanted)
                sent += max(0, wanted)
            self._receive(found, PACED_WAIT_SECONDS if rate is not None else 1.0)
            now = time.perf_counter_ns()
        found.elapsed_ns = now - began
        return found

    def _send(self, wanted: int) -> None:
        frames = self._frames
        while wanted > 0:
            burst = min(wanted, BURST)
            together = b"".join([frames[(self._turn + number) % len(frames)] for number in range(burst)])
            pipe = self._next_pipe
            self._sent_ns[pipe].extend([time.perf_counter_ns()] * burst)
            self._pipes[pipe].socket.sendall(together)
            self._turn += burst
            self._next_pipe = (pipe + 1) % len(self._pipes)
            wanted -= burst

    def _receive(self, found: Spread, seconds: float) -> None:
        for key, _ in self._watch.select(seconds):
            completed = self._pipes[key.data].receive()
            now = time.perf_counter_ns()
            sent_ns = self._sent_ns[key.data]
            found.latencies_ns += [now - sent_ns.popleft() for _ in range(completed)]


def spread(topic: BenchTopic, seconds: float, acks: int = 1, rate: int | None = None) -> Figures:
    """Messages a second, how long each took, and the brokers' CPU; every message must be in the topic."""
    target = topic.cluster
    address = target.endpoint.addresses()[0]
    first = open_connections(address, 1)[0]
    frames = publish_frames(first, topic.name, topic.partitions, VALUE_BYTES, acks)
    before = target.end_offsets(topic.name)
    sizes = []
    for frame in frames:
        response = first.exchange(frame)
        check_response(first.versions[0], response)
        sizes.append(4 + len(response))
    first.close()
    if min(sizes) != max(sizes):
        raise ClientError("responses of one topic differ in size, and cannot be counted by their bytes")
    pipes = SpreadPipes(address, [bytes(frame) for frame in frames], sizes[0])
    try:
        warm = pipes.run(WARM_UP_SECONDS, rate)
        started, client_ns = target.usage(), time.process_time_ns()
        found = pipes.run(seconds, rate)
        ended, client_ns = target.usage(), time.process_time_ns() - client_ns
    finally:
        pipes.close()
    messages = len(found.latencies_ns)
    acknowledged = topic.partitions + len(warm.latencies_ns) + messages
    arrived = target.end_offsets(topic.name) - before
    if arrived != acknowledged:
        raise ClientError(f"{acknowledged} messages were acknowledged, {arrived} are in the topic")
    latencies = percentiles_us(found.latencies_ns)
    return {
        "messages_per_s": round(messages / (found.elapsed_ns / 1e9)),
        "p50_us": latencies["p50_us"],
        "p99_us": latencies["p99_us"],
        "cpu_us": used(started, ended, messages, "message")["broker_cpu_us_per_message"],
        # As long as this is the smaller, the broker and not the client is the limit.
        "client_cpu_us": round(client_ns / 1_000 / max(1, messages), 1),
    }
