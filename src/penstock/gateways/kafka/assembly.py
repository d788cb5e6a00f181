"""Cutting the byte stream of a connection into frames, with as little copying as possible.

    scratch (shared by all connections)   │size│ frame │size│ frame │size│ fra
                                           whole frames are handled in place ─┘ the rest is
    frame buffer (one connection)          copied here, and what follows is received behind it

An idle connection owns no buffer. One that sends large frames keeps its buffer from frame
to frame, until it has been quiet for a while.
"""

import struct
from collections.abc import Callable

from penstock.core.model import ProtocolError

SIZE_BYTES = 4
SCRATCH_BYTES = 128 << 10
REUSED_BYTES_MAX = 4 << 20
_SIZE = struct.Struct(">i")


class Assembly:
    """One connection's half-received frame, if it has one."""

    __slots__ = ("_frame", "_frame_bytes_max", "_have", "_need", "_scratch", "_sized")

    def __init__(self, scratch: memoryview, frame_bytes_max: int) -> None:
        self._scratch = scratch
        self._frame_bytes_max = frame_bytes_max
        self._frame: memoryview | None = None
        self._have = 0
        self._need = 0  # 0: between frames, receiving into scratch
        self._sized = False  # whether `_need` is a frame's size, or that of the size itself

    @property
    def is_partial(self) -> bool:
        """Whether a frame has begun and is not there yet."""
        return self._need > 0

    @property
    def owned_bytes(self) -> int:
        return len(self._frame) if self._frame is not None else 0

    def buffer(self) -> memoryview:
        """Where the next bytes go."""
        if self._need == 0:
            return self._scratch
        assert self._frame is not None
        return self._frame[self._have : self._need]

    def received(self, count: int, handle: Callable[[memoryview], None]) -> None:
        """Hand every frame that is complete now to `handle`; the view is only good during the call."""
        if self._need == 0:
            self._cut(count, handle)
            return
        self._have += count
        if self._have < self._need:
            return
        assert self._frame is not None
        if self._sized:
            frame, self._need = self._frame[: self._need], 0
            handle(frame)
        else:
            self._begin(self._checked(_size(self._frame)), self._scratch[:0])

    def _cut(self, end: int, handle: Callable[[memoryview], None]) -> None:
        scratch, position = self._scratch, 0
        while end - position >= SIZE_BYTES:
            size = self._checked(_size(scratch, position))
            position += SIZE_BYTES
            if end - position < size:
                self._begin(size, scratch[position:end])
                return
            handle(scratch[position : position + size])
            position += size
        if position < end:
            self._own(SIZE_BYTES)
            self._keep(SIZE_BYTES, scratch[position:end], sized=False)

    def _begin(self, size: int, beginning: memoryview) -> None:
        self._own(size)
        self._keep(size, beginning, sized=True)

    def _keep(self, need: int, beginning: memoryview, *, sized: bool) -> None:
        assert self._frame is not None
        self._frame[: len(beginning)] = beginning
        self._have, self._need, self._sized = len(beginning), need, sized

    def _own(self, size: int) -> None:
        """Have a frame buffer of at least `size`; its pages cost nothing until they are written."""
        if self._frame is None or len(self._frame) < size:
            self._frame = memoryview(bytearray(size))

    def _checked(self, size: int) -> int:
        if not 0 < size <= self._frame_bytes_max:
            raise ProtocolError(f"a frame of {size} bytes is outside 1 to {self._frame_bytes_max}")
        return size

    def relax(self) -> None:
        """Give back a buffer that is not in use: called after a frame if it is large, or when idle."""
        if self._need == 0:
            self._frame = None


def _size(buffer: memoryview, position: int = 0) -> int:
    size: int = _SIZE.unpack_from(buffer, position)[0]
    return size
