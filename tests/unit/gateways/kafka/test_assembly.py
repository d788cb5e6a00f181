import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.model import ProtocolError
from penstock.gateways.kafka.assembly import Assembly

FRAME_BYTES_MAX = 10_000


def assembly(scratch_bytes: int = 256) -> Assembly:
    return Assembly(memoryview(bytearray(scratch_bytes)), FRAME_BYTES_MAX)


def feed(into: Assembly, stream: bytes, chunk_bytes: int) -> list[bytes]:
    """Deliver the stream as a socket would: at most a chunk, at most what the buffer takes."""
    frames: list[bytes] = []
    while stream:
        buffer = into.buffer()
        count = min(len(stream), len(buffer), chunk_bytes)
        buffer[:count] = stream[:count]
        stream = stream[count:]
        into.received(count, lambda frame: frames.append(bytes(frame)))
    return frames


def framed(*frames: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)


@given(
    frames=st.lists(st.binary(min_size=1, max_size=700), max_size=12),
    chunk_bytes=st.integers(min_value=1, max_value=600),
    scratch_bytes=st.integers(min_value=8, max_value=600),
)
def test_frames_come_out_as_they_went_in_however_the_stream_is_cut(
    frames: list[bytes], chunk_bytes: int, scratch_bytes: int
) -> None:
    into = assembly(scratch_bytes)

    assert feed(into, framed(*frames), chunk_bytes) == frames
    assert not into.is_partial


@pytest.mark.parametrize("size", [-1, 0, FRAME_BYTES_MAX + 1, 2**31 - 1])
@pytest.mark.parametrize("chunk_bytes", [1, 100])
def test_an_impossible_size_is_refused_before_anything_is_allocated(size: int, chunk_bytes: int) -> None:
    into = assembly()

    with pytest.raises(ProtocolError, match="frame of"):
        feed(into, struct.pack(">i", size) + b"x", chunk_bytes)

    assert into.owned_bytes <= 4


def test_an_idle_connection_owns_no_buffer_after_it_relaxed() -> None:
    into = assembly()
    feed(into, framed(b"x" * 5000), 1000)

    into.relax()

    assert into.owned_bytes == 0
    assert feed(into, framed(b"still works"), 3) == [b"still works"]


def test_a_partial_frame_survives_relaxing() -> None:
    into = assembly()
    stream = framed(b"x" * 5000)
    feed(into, stream[:2000], 1000)

    into.relax()

    assert into.is_partial
    assert feed(into, stream[2000:], 1000) == [b"x" * 5000]
