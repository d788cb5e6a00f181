"""Cuts a stream of bytes into frames: four bytes of size, then that many bytes."""

import struct
from typing import Final

from penstock.core.model import ProtocolError

_SIZE: Final = struct.Struct(">i")


class FrameSplitter:
    """The bytes of one connection that are not a whole frame yet.

    An announced size is checked against the limit at once, and memory is taken only for
    bytes that have arrived. Frames that arrive whole are views into what was received.
    """

    def __init__(self, frame_bytes_max: int) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._pending = bytearray()
        # Bytes that the frame under way needs, its size included; 4 until the size is known.
        self._needed_bytes = _SIZE.size

    @property
    def pending_bytes(self) -> int:
        """How many received bytes wait for the rest of their frame."""
        return len(self._pending)

    def feed(self, received: bytes | memoryview) -> list[memoryview]:
        """Take what a socket gave, and answer the frames that are complete now, without their sizes."""
        if not self._pending:
            return self._split(memoryview(received))
        self._pending += received
        if len(self._pending) < self._needed_bytes:
            return []
        # The frames will be views into these bytes, so they are given away, not emptied.
        whole, self._pending = self._pending, bytearray()
        return self._split(memoryview(whole))

    def _split(self, view: memoryview) -> list[memoryview]:
        frames = []
        position, end = 0, len(view)
        self._needed_bytes = _SIZE.size
        while end - position >= _SIZE.size:
            (size,) = _SIZE.unpack_from(view, position)
            if not 0 <= size <= self._frame_bytes_max:
                raise ProtocolError(
                    f"a frame of {size} bytes is announced, the limit is {self._frame_bytes_max}"
                )
            stop = position + _SIZE.size + size
            if stop > end:
                self._needed_bytes = _SIZE.size + size
                break
            frames.append(view[position + _SIZE.size : stop])
            position = stop
        self._pending += view[position:]
        return frames
