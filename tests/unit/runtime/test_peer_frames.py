import struct

import pytest

from penstock.runtime.peer_link import KEEP_ALIVE, FrameTooLong, PeerFrameReader


def framed(content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + content


def frames_of(reader: PeerFrameReader) -> list[bytes]:
    return list(iter(reader.next_frame, None))


@pytest.mark.parametrize("step", [1, 2, 3, 5, 100])
def test_frames_come_out_whole_however_the_stream_is_cut(step: int) -> None:
    reader = PeerFrameReader(100)
    stream = framed(b"one") + KEEP_ALIVE + framed(b"x" * 100) + KEEP_ALIVE + framed(b"three")

    frames: list[bytes] = []
    for start in range(0, len(stream), step):
        reader.feed(stream[start : start + step])
        frames += frames_of(reader)

    assert frames == [b"one", b"x" * 100, b"three"]


def test_a_length_above_the_limit_is_refused_before_its_bytes_arrive() -> None:
    reader = PeerFrameReader(100)
    reader.feed(framed(b"good") + struct.pack(">I", 101))

    first = reader.next_frame()

    assert first == b"good"
    with pytest.raises(FrameTooLong, match="101 bytes is above the limit of 100"):
        reader.next_frame()


def test_what_was_handed_out_is_not_kept() -> None:
    reader = PeerFrameReader(10_000)

    for _ in range(100):
        reader.feed(framed(b"x" * 10_000))
        frames_of(reader)

    assert len(reader._buffer) == 0
