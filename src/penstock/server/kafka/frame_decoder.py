"""Cuts the byte stream of a connection into frames, with as little copying as possible.

    scratch (shared by all connections)   │size│ frame │size│ frame │size│ fra
                                           whole frames are handled in place ─┘ the rest is
    frame buffer (one connection)          copied here, and what follows is received behind it

An idle connection owns no buffer. One that sends large frames keeps its buffer from frame
to frame, until it has been quiet for a while or others need the bytes.

A handler may want no more frames for now. What is left is put aside then, and so is the beginning
of a frame for which the memory limit has no room: nothing may be received before that has been
handled.
"""

import struct
from collections.abc import Callable
from typing import TypeAlias

from penstock.core.model import ProtocolError
from penstock.runtime.memory_limits import RequestMemoryLimit

SIZE_BYTES = 4
SCRATCH_BYTES = 128 << 10
REUSED_BYTES_MAX = 4 << 20
_unpack_size = struct.Struct(">i").unpack_from
# Returns whether it wants the next frame too.
Handle: TypeAlias = Callable[[memoryview], bool]


class FrameDecoder:
    """One connection's half-received frame, if it has one.

    `target` is where the next bytes go: the scratch buffer between frames, and what is missing
    of a frame once it has begun.
    """

    __slots__ = (
        "_frame",
        "_frame_bytes_max",
        "_have",
        "_need",
        "_request_memory",
        "_scratch",
        "_sized",
        "is_starved",
        "owned_bytes",
        "rest",
        "target",
    )

    def __init__(self, scratch: memoryview, frame_bytes_max: int, budget: RequestMemoryLimit) -> None:
        self._scratch = scratch
        self._frame_bytes_max = frame_bytes_max
        self._request_memory = budget
        self._frame: memoryview | None = None
        self._have = 0
        self._need = 0  # 0: between frames, receiving into scratch
        self._sized = False  # whether `_need` is a frame's size, or that of the size itself
        self.target = scratch
        self.owned_bytes = 0
        # What was put aside; it is handled before anything else.
        self.rest: memoryview | None = None
        # Whether the rest waits for the memory limit, not for the handler.
        self.is_starved = False

    @property
    def is_partial(self) -> bool:
        """Whether a frame has started and is not complete."""
        return self._need > 0

    @property
    def have_bytes(self) -> int:
        """How many bytes of it have arrived."""
        return self._have if self._need else 0

    def buffer_updated(self, count: int, handle: Handle) -> None:  # noqa: C901, PLR0912 - the hot path, straight on purpose
        """Pass every complete frame to `handle`; the view is only valid during the call.

        With a count of 0, try again with what was put aside.
        """
        source, end, need = self._scratch, count, self._need
        if not count:
            rest, self.rest, self.is_starved = self.rest, None, False
            if rest is None:
                return
            source, end = rest, len(rest)
        elif need:
            frame = self._frame
            assert frame is not None
            self._have += count
            if self._have < need:
                self.target = frame[self._have : need]
                return
            self._need, self.target = 0, self._scratch
            if self._sized:
                handle(frame[:need])
                return
            source, end = frame, SIZE_BYTES
        assert self.rest is None, "what was put aside comes first"
        position, wanted = 0, True
        while wanted and end - position >= SIZE_BYTES:
            size = _unpack_size(source, position)[0]
            if not 0 < size <= self._frame_bytes_max:
                raise ProtocolError(f"a frame of {size} bytes is outside 1 to {self._frame_bytes_max}")
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
        # A writable copy: the scratch buffer is shared.
        self.rest = memoryview(bytearray(rest))

    def _keep(self, need: int, beginning: memoryview, *, sized: bool) -> None:
        assert self._frame is not None
        self._frame[: len(beginning)] = beginning
        self._have, self._need, self._sized = len(beginning), need, sized
        self.target = self._frame[self._have : need]

    def _own(self, size: int) -> bool:
        """Have a frame buffer of at least `size`; its pages cost nothing until they are written."""
        if self.owned_bytes >= size:
            return True
        self.release_buffer()
        if not self._request_memory.claim(size):
            return False
        self._frame = memoryview(bytearray(size))
        self.owned_bytes = size
        return True

    def release_buffer(self) -> None:
        """Give back a buffer that is not in use: called after a frame if it is large, or when idle."""
        if self._need == 0 and self._frame is not None:
            self._request_memory.give_back(self.owned_bytes)
            self._frame, self.owned_bytes = None, 0

    def close(self) -> None:
        """Give back all memory: the connection has ended."""
        self._need, self.rest, self.target = 0, None, self._scratch
        self.release_buffer()
