import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.model import MILLISECOND, SECOND, Instant, ProtocolError
from penstock.runtime.memory_limits import RequestMemoryLimit
from penstock.server.kafka.frame_decoder import FrameDecoder

FRAME_BYTES_MAX = 10_000
LARGE_BYTES_MAX = 100 << 20


def assembly(scratch_bytes: int = 256, budget: RequestMemoryLimit | None = None) -> FrameDecoder:
    scratch = memoryview(bytearray(scratch_bytes))
    return FrameDecoder(scratch, FRAME_BYTES_MAX, budget or RequestMemoryLimit(lambda wake: None))


def large_assembly(budget: RequestMemoryLimit, owner: "Owner | None" = None) -> FrameDecoder:
    return FrameDecoder(memoryview(bytearray(1 << 16)), LARGE_BYTES_MAX, budget, owner)


class Owner:
    """A connection that is closed when others need its memory."""

    def __init__(self) -> None:
        self.is_paused = False
        self.is_evicted = False
        self.decoder: FrameDecoder | None = None
        # Frames that begin with this are too large.
        self.refused: bytes | None = None

    def refuses(self, _size: int, beginning: memoryview) -> bool:
        return self.refused is not None and beginning[: len(self.refused)] == self.refused

    def evict(self) -> None:
        self.is_evicted = True
        assert self.decoder is not None
        self.decoder.close()


class Crowd:
    """Connections that share the memory for requests."""

    def __init__(self, bytes_max: int) -> None:
        self.soon: list[Callable[[], None]] = []
        self.budget = RequestMemoryLimit(self.soon.append, bytes_max=bytes_max)
        self.now_ns = 3_600 * SECOND

    def join(self) -> tuple[FrameDecoder, Owner]:
        owner = Owner()
        owner.decoder = large_assembly(self.budget, owner)
        return owner.decoder, owner

    def announce(self, into: FrameDecoder, size: int, arrived: int) -> None:
        """Let the first bytes of a frame arrive, as far as there is memory for them."""
        left = memoryview(struct.pack(">i", size) + bytes(arrived))
        while left and not into.is_starved:
            count = min(len(left), len(into.target))
            into.target[:count] = left[:count]
            into.buffer_updated(count, lambda frame: True)
            left = left[count:]

    def wait(self, into: FrameDecoder) -> None:
        assert into.is_starved
        self.budget.wait(into, lambda: into.buffer_updated(0, lambda frame: True))

    def pass_ms(self, duration_ms: int) -> None:
        self.now_ns += duration_ms * MILLISECOND
        self.budget.judge(Instant(self.now_ns))
        soon, self.soon[:] = list(self.soon), []
        for wake in soon:
            wake()


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
    budget = RequestMemoryLimit(lambda wake: None)
    into = assembly(budget=budget)
    stream = framed(b"one", b"two", b"three") + framed(b"four")[:-1]
    into.target[: len(stream)] = stream
    frames: list[bytes] = []

    def take_one(frame: memoryview) -> bool:
        frames.append(bytes(frame))
        return False

    into.buffer_updated(len(stream), take_one)
    assert (frames, into.rest is not None, into.is_starved) == ([b"one"], True, False)
    assert budget.kept_bytes == len(stream) - len(framed(b"one"))
    # Somebody else uses the scratch buffer meanwhile.
    into._scratch[:] = bytes(len(into._scratch))
    into.buffer_updated(0, take_one)
    into.buffer_updated(0, take_one)

    assert frames == [b"one", b"two", b"three"]
    into.buffer_updated(0, take_one)
    assert into.is_partial
    assert budget.kept_bytes == 0
    into.target[:1] = b"r"
    into.buffer_updated(1, take_one)
    assert frames[-1] == b"four"


def test_a_frame_for_which_there_are_no_bytes_waits_until_others_gave_theirs_back() -> None:
    woken: list[Callable[[], None]] = []
    budget = RequestMemoryLimit(woken.append, bytes_max=6_000)
    greedy, modest = assembly(budget=budget), assembly(budget=budget)
    feed(greedy, framed(b"x" * 5_000)[:1_000], 250)
    assert budget.claimed_bytes == 5_000
    stream = framed(b"y" * 5_000)
    modest.target[:100] = stream[:100]

    modest.buffer_updated(100, lambda frame: True)
    assert (modest.rest is not None, modest.is_starved, budget.claimed_bytes) == (True, True, 5_000)
    budget.wait(modest, lambda: modest.buffer_updated(0, lambda frame: True))
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
    assert quiet.owned_bytes > 0

    assert feed(busy, framed(b"y" * 5_000), 250) == [b"y" * 5_000]

    assert quiet.owned_bytes == 0


def test_one_frame_is_let_in_however_large_it_is() -> None:
    into = assembly(budget=RequestMemoryLimit(lambda wake: None, bytes_max=100))

    assert feed(into, framed(b"x" * 5_000), 250) == [b"x" * 5_000]


def test_what_was_put_aside_is_not_counted_for_a_connection_that_has_ended() -> None:
    budget = RequestMemoryLimit(lambda wake: None)
    into = assembly(budget=budget)
    stream = framed(b"one", b"two")
    into.target[: len(stream)] = stream
    into.buffer_updated(len(stream), lambda frame: False)
    assert budget.kept_bytes > 0

    into.close()

    assert budget.kept_bytes == 0


def test_little_is_read_at_a_time_when_much_is_put_aside() -> None:
    pressed: list[int] = []
    budget = RequestMemoryLimit(lambda wake: None, bytes_max=4_000)
    budget.on_pressed = lambda: pressed.append(budget.kept_bytes)
    stream = framed(b"one", b"x" * 200)
    for _ in range(10):
        into = assembly(budget=budget)
        into.target[: len(stream)] = stream
        into.buffer_updated(len(stream), lambda frame: False)

    assert pressed == list(range(5 * 204 + 0, 10 * 204 + 1, 204))


def test_a_connection_that_ends_gives_everything_back() -> None:
    budget = RequestMemoryLimit(lambda wake: None)
    into = assembly(budget=budget)
    feed(into, framed(b"x" * 5_000)[:-1], 250)

    into.close()

    assert budget.claimed_bytes == 0


def test_a_frame_that_is_only_announced_takes_next_to_no_memory() -> None:
    crowd = Crowd(bytes_max=256 << 20)
    into, _ = crowd.join()

    crowd.announce(into, 100 << 20, arrived=4)

    assert into.is_partial
    assert into.owned_bytes == crowd.budget.claimed_bytes <= 16 << 10


@pytest.mark.parametrize("chunk_bytes", [1_000, 60_000])
def test_the_buffer_of_a_frame_grows_with_the_bytes_that_arrive(chunk_bytes: int) -> None:
    budget = RequestMemoryLimit(lambda wake: None)
    into = large_assembly(budget)
    content = bytes(range(256)) * 4_000
    frames: list[bytes] = []

    def take(frame: memoryview) -> bool:
        frames.append(bytes(frame))
        return True

    stream, arrived = framed(content), 0
    while arrived < len(stream):
        buffer = into.target
        count = min(len(stream) - arrived, len(buffer), chunk_bytes)
        buffer[:count] = stream[arrived : arrived + count]
        arrived += count
        into.buffer_updated(count, take)
        assert into.owned_bytes <= (16 << 10) + 4 * arrived

    assert frames == [content]
    assert budget.claimed_bytes == into.owned_bytes


def test_a_frame_that_stands_still_is_given_up_when_another_needs_its_memory() -> None:
    crowd = Crowd(bytes_max=8 << 20)
    (slow, slow_owner), (modest, modest_owner) = crowd.join(), crowd.join()
    crowd.announce(slow, 90 << 20, arrived=5 << 20)
    assert not slow.is_starved  # one frame is always allowed
    crowd.announce(modest, 1 << 20, arrived=600 << 10)
    crowd.wait(modest)

    crowd.pass_ms(0)
    crowd.pass_ms(30)

    assert slow_owner.is_evicted
    assert not modest_owner.is_evicted
    assert not modest.is_starved


def test_of_two_that_hold_memory_the_one_that_makes_progress_is_spared() -> None:
    crowd = Crowd(bytes_max=8 << 20)
    (quick, quick_owner), (slow, slow_owner), (modest, _) = crowd.join(), crowd.join(), crowd.join()
    crowd.announce(quick, 3 << 20, arrived=1 << 20)
    crowd.announce(slow, 3 << 20, arrived=1 << 20)
    crowd.announce(modest, 2 << 20, arrived=1 << 20)
    crowd.wait(modest)

    crowd.pass_ms(0)
    quick.buffer_updated(len(quick.target) // 2, lambda frame: True)
    slow.buffer_updated(10, lambda frame: True)
    crowd.pass_ms(30)

    assert (quick_owner.is_evicted, slow_owner.is_evicted) == (False, True)
    assert not modest.is_starved


def test_a_frame_that_waits_for_its_turn_is_not_blamed_for_that() -> None:
    crowd = Crowd(bytes_max=8 << 20)
    (patient, owner), (modest, _) = crowd.join(), crowd.join()
    crowd.announce(patient, 6 << 20, arrived=5 << 20)
    crowd.announce(modest, 2 << 20, arrived=1_100 << 10)
    crowd.wait(modest)
    owner.is_paused = True

    for _ in range(20):
        crowd.pass_ms(30)

    assert not owner.is_evicted


def test_frames_that_wait_for_each_other_are_let_through_one_by_one() -> None:
    crowd = Crowd(bytes_max=4 << 20)
    crowded = [crowd.join() for _ in range(4)]
    for into, _ in crowded:
        crowd.announce(into, 3 << 20, arrived=800 << 10)
    assert any(into.is_starved for into, _ in crowded)

    finished: list[int] = []

    def end(frame: memoryview) -> bool:
        finished.append(len(frame))
        return True

    for _ in range(50):
        for into, _ in crowded:
            if into.is_starved:
                crowd.wait(into)
            elif into.is_partial:
                into.buffer_updated(min(len(into.target), 1 << 20), end)
                into.release_buffer()
        crowd.pass_ms(5)

    assert finished == [3 << 20] * len(crowded)
    assert not any(owner.is_evicted for _, owner in crowded)
    assert crowd.budget.claimed_bytes == 0


def test_small_frames_have_memory_of_their_own() -> None:
    crowd = Crowd(bytes_max=8 << 20)
    (large, _), (other, _), (small, _) = crowd.join(), crowd.join(), crowd.join()
    crowd.announce(large, 7 << 20, arrived=2 << 20)
    crowd.announce(other, 7 << 20, arrived=2 << 20)
    assert other.is_starved

    crowd.announce(small, 100_000, arrived=90_000)

    assert not small.is_starved


@given(st.integers(10_000, 300_000), st.integers(1, 2))
def test_a_frame_that_is_refused_is_dropped_and_those_around_it_are_not(chunk_bytes: int, count: int) -> None:
    owner = Owner()
    owner.refused = b"too large"
    budget = RequestMemoryLimit(lambda wake: None)
    into = large_assembly(budget, owner)
    small, allowed = b"small", b"as large" + bytes(150_000)
    refused = b"too large" + bytes(200_000)
    stream = b"".join(
        struct.pack(">i", len(frame)) + frame for frame in [small, refused, allowed, refused, small] * count
    )

    assert feed(into, stream, chunk_bytes) == [small, allowed, small] * count


def test_a_frame_that_is_refused_owns_no_memory() -> None:
    owner = Owner()
    owner.refused = b"too large"
    budget = RequestMemoryLimit(lambda wake: None)
    into = large_assembly(budget, owner)

    feed(into, struct.pack(">i", 50 << 20) + b"too", 7)
    begun_bytes = budget.claimed_bytes
    feed(into, b" large" + bytes(500_000), 100_000)

    assert (begun_bytes > 0, budget.claimed_bytes) == (True, 0)
