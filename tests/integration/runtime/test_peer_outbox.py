"""Bytes on their way to a socket that takes only some of them."""

import socket
from collections.abc import Iterator

import pytest

from penstock.runtime.peer_link import LinkOutbox


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    with ours, theirs:
        yield ours, theirs


def read_all(connected: socket.socket) -> bytes:
    received = b""
    try:
        while piece := connected.recv(1 << 20):
            received += piece
    except BlockingIOError:
        pass
    return received


def test_borrowed_bytes_are_copied_before_the_caller_changes_them(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = pair
    outbox = LinkOutbox()
    lent = bytearray(b"a" * 5_000_000)

    outbox.put((memoryview(lent),), len(lent), borrow=True)
    emptied = outbox.write_to(ours)
    lent[:] = b"b" * len(lent)
    received = read_all(theirs)
    while not emptied:
        emptied = outbox.write_to(ours)
        received += read_all(theirs)

    assert received == b"a" * 5_000_000
    assert outbox.size_bytes == 0


def test_many_small_frames_leave_in_order_across_short_writes(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = pair
    outbox = LinkOutbox()
    frames = [bytes([number % 251]) * (number % 700) for number in range(3000)]
    for frame in frames:
        outbox.put((bytearray(frame),), len(frame), borrow=False)

    received = b""
    while not outbox.write_to(ours):
        received += read_all(theirs)
    received += read_all(theirs)

    assert received == b"".join(frames)
