import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.model import ProtocolError
from penstock.runtime.memory_limits import RequestMemoryLimit
from penstock.server.kafka.frame_decoder import FrameDecoder

FRAME_BYTES_MAX = 10_000


def assembly(scratch_bytes: int = 256, budget: RequestMemoryLimit | None = None) -> FrameDecoder:
    scratch = memoryview(bytearray(scratch_bytes))
    return FrameDecoder(scratch, FRAME_BYTES_MAX, budget or RequestMemoryLimit(lambda wake: None))


def feed(into: FrameDecoder, stream: bytes, chunk_bytes: int) -> list[bytes]:
    """Deliver the stream as a socket would: at most a chunk, at most what the buffer takes."""
    frames: list[bytes] = []

    def take(frame: memoryview) -> bool:
        frames.append(bytes(frame))
        return True

    while stream:
        buffer = into.target
        count = min(len(stream), len(buffer), chunk_bytes)
        buffer[:count] = stream[:count]
        stream = stream[count:]
        into.buffer_updated(count, take)
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

    into.release_buffer()

    assert into.owned_bytes == 0
    assert feed(into, framed(b"still works"), 3) == [b"still works"]


def test_a_partial_frame_survives_relaxing() -> None:
    into = assembly()
    stream = framed(b"x" * 5000)
    feed(into, stream[:2000], 1000)

    into.release_buffer()

    assert into.is_partial
    assert feed(into, stream[2000:], 1000) == [b"x" * 5000]


def test_what_is_not_wanted_now_is_put_aside_and_comes_first_later() -> None:
    into = assembly()
    stream = framed(b"one", b"two", b"three") + framed(b"four")[:-1]
    into.target[: len(stream)] = stream
    frames: list[bytes] = []

    def take_one(frame: memoryview) -> bool:
        frames.append(bytes(frame))
        return False

    into.buffer_updated(len(stream), take_one)
    assert (frames, into.rest is not None, into.is_starved) == ([b"one"], True, False)
    # Somebody else uses the scratch buffer meanwhile.
    into._scratch[:] = bytes(len(into._scratch))
    into.buffer_updated(0, take_one)
    into.buffer_updated(0, take_one)

    assert frames == [b"one", b"two", b"three"]
    into.buffer_updated(0, take_one)
    assert into.is_partial
    into.target[:1] = b"r"
    into.buffer_updated(1, take_one)
    assert frames[-1] == b"four"


def test_a_frame_for_which_there_are_no_bytes_waits_until_others_gave_theirs_back() -> None:
    woken: list[Callable[[], None]] = []
    budget = RequestMemoryLimit(woken.append, bytes_max=6_000)
    greedy, modest = assembly(budget=budget), assembly(budget=budget)
    feed(greedy, framed(b"x" * 5_000)[:1_000], 250)
    stream = framed(b"y" * 5_000)
    modest.target[:100] = stream[:100]

    modest.buffer_updated(100, lambda frame: True)
    assert (modest.rest is not None, modest.is_starved, budget.claimed_bytes) == (True, True, 5_000)
    budget.wait(lambda: modest.buffer_updated(0, lambda frame: True))
    greedy.close()
    assert budget.claimed_bytes == 0
    woken.pop()()

    assert modest.rest is None
    assert feed(modest, stream[100:], 1_000) == [b"y" * 5_000]


def test_bytes_that_are_only_kept_for_later_go_to_those_who_need_them_now() -> None:
    budget = RequestMemoryLimit(lambda wake: None, bytes_max=6_000)
    quiet, busy = assembly(budget=budget), assembly(budget=budget)
    budget.on_exhausted(quiet.release_buffer)
    feed(quiet, framed(b"x" * 5_000), 250)
    assert quiet.owned_bytes == 5_000

    assert feed(busy, framed(b"y" * 5_000), 250) == [b"y" * 5_000]

    assert quiet.owned_bytes == 0


def test_one_frame_is_let_in_however_large_it_is() -> None:
    into = assembly(budget=RequestMemoryLimit(lambda wake: None, bytes_max=100))

    assert feed(into, framed(b"x" * 5_000), 250) == [b"x" * 5_000]


def test_a_connection_that_ends_gives_everything_back() -> None:
    budget = RequestMemoryLimit(lambda wake: None)
    into = assembly(budget=budget)
    feed(into, framed(b"x" * 5_000)[:-1], 250)

    into.close()

    assert budget.claimed_bytes == 0
