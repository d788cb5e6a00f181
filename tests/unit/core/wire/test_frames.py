"""How a stream of bytes becomes frames."""

import tracemalloc

import pytest

from penstock.core.model import ProtocolError
from penstock.core.wire.frames import FrameSplitter


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def test_frames_that_arrive_together_come_out_apart() -> None:
    splitter = FrameSplitter(100)

    frames = splitter.feed(framed(b"one") + framed(b"") + framed(b"three"))

    assert [bytes(frame) for frame in frames] == [b"one", b"", b"three"]
    assert splitter.pending_bytes == 0


def test_a_frame_that_arrives_byte_by_byte_comes_out_once() -> None:
    splitter = FrameSplitter(100)
    stream = framed(b"hello") + framed(b"world")

    frames = [bytes(frame) for byte in stream for frame in splitter.feed(bytes([byte]))]

    assert frames == [b"hello", b"world"]


def test_frames_stay_as_they_were_when_more_bytes_arrive() -> None:
    splitter = FrameSplitter(100)
    splitter.feed(framed(b"first")[:6])

    (first,) = splitter.feed(framed(b"first")[6:] + framed(b"second")[:5])
    (second,) = splitter.feed(framed(b"second")[5:])

    assert bytes(first) == b"first"
    assert bytes(second) == b"second"


@pytest.mark.parametrize("size", [101, 2**31 - 1, -1, -(2**31)])
def test_a_size_outside_the_limit_is_refused_as_soon_as_it_is_known(size: int) -> None:
    splitter = FrameSplitter(100)

    with pytest.raises(ProtocolError, match=str(size)):
        splitter.feed(size.to_bytes(4, "big", signed=True))


def test_an_announced_size_takes_no_memory_until_its_bytes_arrive() -> None:
    splitter = FrameSplitter(2**30)
    tracemalloc.start()

    splitter.feed((2**30).to_bytes(4, "big") + b"x")

    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10_000
    assert splitter.pending_bytes == 5
