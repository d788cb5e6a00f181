"""Cutting a byte stream into frames.

+----------------+---------------------+
| length: uint32 | length bytes        |   big-endian; length 0 is a keep-alive
+----------------+---------------------+
"""

import struct

from penstock.core.model import ProtocolError

LENGTH = struct.Struct(">I")
KEEP_ALIVE = LENGTH.pack(0)


class FrameTooLong(ProtocolError):
    """The peer announced a frame above the limit."""


class FrameReader:
    """Collects bytes as they come and gives whole frames, holding no more than one frame and one read."""

    __slots__ = ("_buffer", "_start", "frame_bytes_max")

    def __init__(self, frame_bytes_max: int) -> None:
        self.frame_bytes_max = frame_bytes_max
        self._buffer = bytearray()
        self._start = 0

    def feed(self, data: bytes | memoryview) -> None:
        """Add what was read from the peer."""
        self._buffer += data

    def next_frame(self) -> bytes | None:
        """Give the next whole frame, keep-alives left out, or None: then feed more.

        The announced length is judged as soon as it is there, and memory grows only with
        the bytes that really arrive.
        """
        buffer = self._buffer
        start = self._start
        while len(buffer) - start >= LENGTH.size:
            (length,) = LENGTH.unpack_from(buffer, start)
            if length > self.frame_bytes_max:
                raise FrameTooLong(f"a frame of {length} bytes, limit {self.frame_bytes_max}")
            start += LENGTH.size
            if length == 0:
                self._start = start
                continue
            end = start + length
            if len(buffer) < end:
                break
            self._start = end
            return bytes(memoryview(buffer)[start:end])
        if self._start:
            # Only the unfinished frame is kept: this is where the consumed bytes are freed.
            del buffer[: self._start]
            self._start = 0
        return None
