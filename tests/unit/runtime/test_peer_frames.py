import socket
import struct
from contextlib import closing

import pytest

from penstock.runtime.peer_link import KEEP_ALIVE, FrameTooLong, LinkOutbox, PeerFrameReader


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


@pytest.mark.parametrize("parts", [(b"whole", b""), (b"", b"whole"), (b"", b"")])
@pytest.mark.parametrize("borrow", [False, True])
def test_empty_parts_are_not_waited_for(parts: tuple[bytes, ...], *, borrow: bool) -> None:
    outbox = LinkOutbox()
    outbox.put(parts, sum(map(len, parts)), borrow=borrow)
    ours, theirs = socket.socketpair()
    with closing(ours), closing(theirs):
        calls = iter(range(3))

        class Counted:
            def sendmsg(self, buffers: list[bytes]) -> int:
                assert next(calls, None) is not None, "it is offered again and again"
                return ours.sendmsg(buffers)

        assert outbox.write_to(Counted())  # type: ignore[arg-type]
        ours.shutdown(socket.SHUT_WR)
        assert theirs.recv(100) == b"".join(parts)
    assert outbox.size_bytes == 0
