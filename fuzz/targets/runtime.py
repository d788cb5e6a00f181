"""What a stranger can send to the peer port: frames and greetings."""

import random
import struct
from uuid import UUID

from fuzz.harness import Target
from penstock.core.model import NodeId, ProtocolError
from penstock.runtime.peer_handshake import Hello, HelloRefusal, read_greeting, write_hello, write_refusal
from penstock.runtime.peer_link import PeerFrameReader
from penstock.runtime.port import NodeIdentity

_FRAME_BYTES_MAX = 512


def seed_greeting(rng: random.Random) -> bytes:
    """A hello with any authentication slot, or a refusal."""
    if rng.random() < 0.2:
        return write_refusal(rng.choice(list(HelloRefusal)))
    identity = NodeIdentity(
        UUID(bytes=rng.randbytes(16)), NodeId(rng.randrange(1 << 31)), UUID(bytes=rng.randbytes(16))
    )
    return write_hello(Hello(identity, rng.randbytes(rng.choice((0, 1, 100, 1024)))))


def run_greeting(content: bytes) -> None:
    """A greeting that is understood says the same when it is written again."""
    greeting = read_greeting(content)
    written = write_hello(greeting) if isinstance(greeting, Hello) else write_refusal(greeting)
    assert read_greeting(written) == greeting


def seed_frames(rng: random.Random) -> bytes:
    """A few frames back to back, keep-alives among them."""
    frames = [rng.randbytes(rng.choice((0, 1, 17, 100, 512))) for _ in range(rng.randrange(1, 6))]
    return b"".join(struct.pack(">I", len(frame)) + frame for frame in frames)


def run_frames(content: bytes) -> None:
    """However the stream is cut into reads, the same frames come out, and the same error."""
    whole, whole_error = _frames_of([content])
    step = 1 + len(content) % 7
    pieces = [content[start : start + step] for start in range(0, len(content), step)]
    assert _frames_of(pieces) == (whole, whole_error)
    if whole_error:
        raise ProtocolError(whole_error)


def _frames_of(pieces: list[bytes]) -> tuple[list[bytes], str]:
    reader = PeerFrameReader(_FRAME_BYTES_MAX)
    frames: list[bytes] = []
    try:
        for piece in pieces:
            reader.feed(piece)
            while (frame := reader.next_frame()) is not None:
                assert 0 < len(frame) <= _FRAME_BYTES_MAX
                frames.append(frame)
    except ProtocolError as error:
        return frames, str(error)
    return frames, ""


TARGETS = (
    Target("peer-greeting", seed_greeting, run_greeting, (ProtocolError,)),
    Target("peer-frames", seed_frames, run_frames, (ProtocolError,)),
)
