"""Cutting the byte stream of a connection into frames, with as little copying as possible.

    scratch (shared by all connections)   │size│ frame │size│ frame │size│ fra
                                           whole frames are handled in place ─┘ the rest is
    frame buffer (one connection)          copied here, and what follows is received behind it

An idle connection owns no buffer. One that sends large frames keeps its buffer from frame
to frame, until it has been quiet for a while or others need the bytes.

Whoever handles frames may want no more of them for now. What is left is put aside then, and
so is the beginning of a frame for which there are no bytes to be had: nothing may be received
before `go_on` has dealt with it.
"""

import struct
from collections.abc import Callable
from typing import TypeAlias

from penstock.core.model import ProtocolError
from penstock.runtime.pipes import Budget

SIZE_BYTES = 4
SCRATCH_BYTES = 128 << 10
REUSED_BYTES_MAX = 4 << 20
_SIZE = struct.Struct(">i")

# Answers whether it wants the next frame too.
Handle: TypeAlias = Callable[[memoryview], bool]


class Assembly:
    """One connection's half-received frame, if it has one."""

    __slots__ = (
        "_budget",
        "_frame",
        "_frame_bytes_max",
        "_have",
        "_need",
        "_rest",
        "_scratch",
        "_sized",
        "is_starved",
    )

    def __init__(self, scratch: memoryview, frame_bytes_max: int, budget: Budget) -> None:
        self._scratch = scratch
        self._frame_bytes_max = frame_bytes_max
        self._budget = budget
        self._frame: memoryview | None = None
        self._have = 0
        self._need = 0  # 0: between frames, receiving into scratch
        self._sized = False  # whether `_need` is a frame's size, or that of the size itself
        self._rest: memoryview | None = None
        # Whether the rest waits for the budget, and not for the one who handles frames.
        self.is_starved = False

    @property
    def is_partial(self) -> bool:
        """Whether a frame has begun and is not there yet."""
        return self._need > 0

    @property
    def have_bytes(self) -> int:
        """How much of it is there."""
        return self._have if self._need else 0

    @property
    def has_rest(self) -> bool:
        """Whether something was put aside."""
        return self._rest is not None

    @property
    def owned_bytes(self) -> int:
        return len(self._frame) if self._frame is not None else 0

    def buffer(self) -> memoryview:
        """Where the next bytes go."""
        assert self._rest is None, "what was put aside comes first"
        if self._need == 0:
            return self._scratch
        assert self._frame is not None
        return self._frame[self._have : self._need]

    def received(self, count: int, handle: Handle) -> None:
        """Hand every frame that is complete now to `handle`; the view is only good during the call."""
        if self._need == 0:
            self._cut(self._scratch, count, handle)
            return
        self._have += count
        if self._have < self._need:
            return
        assert self._frame is not None
        if self._sized:
            frame, self._need = self._frame[: self._need], 0
            handle(frame)
        else:
            size, self._need = self._frame[:SIZE_BYTES], 0
            self._cut(size, SIZE_BYTES, handle)

    def go_on(self, handle: Handle) -> None:
        """Try again with what was put aside."""
        rest, self._rest, self.is_starved = self._rest, None, False
        if rest is not None:
            self._cut(rest, len(rest), handle)

    def _cut(self, source: memoryview, end: int, handle: Handle) -> None:
        position, wanted = 0, True
        while wanted and end - position >= SIZE_BYTES:
            size = self._checked(_size(source, position))
            begin = position + SIZE_BYTES
            if end - begin < size:
                if self._own(size):
                    self._keep(size, source[begin:end], sized=True)
                else:
                    self.is_starved = True
                    self._put_aside(source[position:end])
                return
            position = begin + size
            wanted = handle(source[begin:position])
        if position < end:
            self.is_starved = wanted and not self._own(SIZE_BYTES)
            if not wanted or self.is_starved:
                self._put_aside(source[position:end])
            else:
                self._keep(SIZE_BYTES, source[position:end], sized=False)

    def _put_aside(self, rest: memoryview) -> None:
        # A copy, and one that can be written to: the scratch buffer is everybody's.
        self._rest = memoryview(bytearray(rest))

    def _keep(self, need: int, beginning: memoryview, *, sized: bool) -> None:
        assert self._frame is not None
        self._frame[: len(beginning)] = beginning
        self._have, self._need, self._sized = len(beginning), need, sized

    def _own(self, size: int) -> bool:
        """Have a frame buffer of at least `size`; its pages cost nothing until they are written."""
        if self.owned_bytes >= size:
            return True
        self.relax()
        if not self._budget.claim(size):
            return False
        self._frame = memoryview(bytearray(size))
        return True

    def _checked(self, size: int) -> int:
        if not 0 < size <= self._frame_bytes_max:
            raise ProtocolError(f"a frame of {size} bytes is outside 1 to {self._frame_bytes_max}")
        return size

    def relax(self) -> None:
        """Give back a buffer that is not in use: called after a frame if it is large, or when idle."""
        if self._need == 0 and self._frame is not None:
            self._budget.give_back(len(self._frame))
            self._frame = None

    def close(self) -> None:
        """The connection is over: own nothing."""
        self._need, self._rest = 0, None
        self.relax()


def _size(buffer: memoryview, position: int = 0) -> int:
    size: int = _SIZE.unpack_from(buffer, position)[0]
    return size
