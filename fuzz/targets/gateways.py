"""The byte stream of a Kafka connection, cut into frames as the node does it."""

import random

from fuzz.harness import Target
from penstock.core.model import ProtocolError
from penstock.runtime.memory_limits import RequestMemoryLimit
from penstock.server.kafka.frame_decoder import FrameDecoder

FRAME_BYTES_MAX = 1 << 16
SCRATCH_BYTES = 256


def some_frames(rng: random.Random) -> bytes:
    bodies = [rng.randbytes(rng.choice((1, 30, 300))) for _ in range(rng.randint(1, 5))]
    return b"".join(len(body).to_bytes(4, "big") + body for body in bodies)


def cut_frames(stream: bytes) -> int:
    """Deliver the stream whole, halved and in small bites, as a socket might."""
    return sum(_deliver(stream, bite) for bite in (len(stream) or 1, len(stream) // 2 or 1, 7))


def _deliver(stream: bytes, bite: int) -> int:
    frames: list[int] = []

    def handle(frame: memoryview) -> bool:
        frames.append(len(frame))
        return True

    budget = RequestMemoryLimit(lambda wake: wake(), 4 * FRAME_BYTES_MAX)
    assembly = FrameDecoder(memoryview(bytearray(SCRATCH_BYTES)), FRAME_BYTES_MAX, budget)
    while stream:
        buffer = assembly.target
        count = min(len(stream), len(buffer), bite)
        buffer[:count] = stream[:count]
        stream = stream[count:]
        assembly.buffer_updated(count, handle)
        assert assembly.owned_bytes <= FRAME_BYTES_MAX
    return len(frames)


TARGETS = (Target("kafka-frames", some_frames, cut_frames, (ProtocolError,)),)
