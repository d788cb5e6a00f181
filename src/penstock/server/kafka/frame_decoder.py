"""Cuts the byte stream of a connection into frames, with as little copying as possible.

    scratch (shared by all connections)   │size│ frame │size│ frame │size│ fra
                                           whole frames are handled in place ─┘ the rest is
    frame buffer (one connection)          copied here, and what follows is received behind it

An idle connection owns no buffer. A frame's buffer grows with the bytes that arrive, whatever size
was announced; a connection that sends large frames keeps it from frame to frame, until it has been
quiet for a while or others need the bytes.

A handler may want no more frames for now. What is left is put aside then, and so is the beginning
of a frame for which the memory limit has no room: nothing may be received before that has been
handled. A frame whose buffer cannot grow waits likewise.

How large a frame may be is up to what it asks for, which its first bytes say. The rest of one that is too
large is received and dropped.
"""

import struct
from collections.abc import Callable
from typing import Protocol, TypeAlias

from penstock.core.model import ProtocolError
from penstock.runtime.memory_limits import RequestMemoryLimit
from penstock.server.kafka.request_limits import LIMITED_BYTES

SIZE_BYTES = 4
SCRATCH_BYTES = 128 << 10
REUSED_BYTES_MAX = 4 << 20
# What is read at a time while others wait, and would have to be kept until it is served.
CONTENDED_BYTES = 8 << 10
# A buffer begins with so much, and has room for so many times the bytes that have arrived.
FIRST_BYTES = 16 << 10
GROWTH = 4
# A frame that may be too large for what it asks is judged by so many of its bytes.
JUDGED_BYTES = 8
_unpack_size = struct.Struct(">i").unpack_from
# Returns whether it wants the next frame too.
Handle: TypeAlias = Callable[[memoryview], bool]


class FrameOwner(Protocol):
    """The connection that a frame comes from."""

    is_paused: bool

    def evict(self) -> None:
        """Close the connection: others need the memory of its frame."""

    def refuses(self, size: int, beginning: memoryview) -> bool:
        """Whether a frame of this size must not be received, by its first bytes; its client is told."""


class FrameDecoder:
    """One connection's half-received frame, if it has one.

    `target` is where the next bytes go: the scratch buffer between frames, and what is missing
    of a frame once it has begun.
    """

    __slots__ = (
        "_frame",
        "_frame_bytes_max",
        "_have",
        "_is_judged",
        "_is_skipped",
        "_need",
        "_owner",
        "_request_memory",
        "_rest_bytes",
        "_scratch",
        "_sized",
        "is_starved",
        "owned_bytes",
        "rest",
        "target",
    )

    def __init__(
        self,
        scratch: memoryview,
        frame_bytes_max: int,
        budget: RequestMemoryLimit,
        owner: FrameOwner | None = None,
    ) -> None:
        self._owner = owner
        self._scratch = scratch
        self._frame_bytes_max = frame_bytes_max
        self._request_memory = budget
        self._frame: memoryview | None = None
        self._have = 0
        self._need = 0  # 0: between frames, receiving into scratch
        self._is_judged = True  # whether its owner was asked, if it is large
        self._is_skipped = False
        self._sized = False  # whether `_need` is a frame's size, or that of the size itself
        self.target = scratch
        self.owned_bytes = 0
        # What was put aside; it is handled before anything else.
        self.rest: memoryview | None = None
        self._rest_bytes = 0
        # Whether the rest, or the next bytes of a frame, wait for the memory limit.
        self.is_starved = False

    @property
    def is_partial(self) -> bool:
        """Whether a frame has started and is not complete."""
        return self._need > 0

    @property
    def have_bytes(self) -> int:
        """How many bytes of it have arrived."""
        return self._have if self._need else 0

    @property
    def missing_bytes(self) -> int:
        """How many bytes of it have not arrived; one that was put aside has none."""
        if self._need:
            return self._need - self._have
        if self.is_starved and self.rest is not None and len(self.rest) >= SIZE_BYTES:
            return max(1, int(_unpack_size(self.rest, 0)[0]))
        return 0

    @property
    def contended_target(self) -> memoryview:
        """The same as `target`, but little of it between frames: others wait to be served."""
        return self.target if self._need else self._scratch[:CONTENDED_BYTES]

    @property
    def is_held_back(self) -> bool:
        """Whether nothing of it can arrive, because the connection waits for memory or for its turn."""
        return self.is_starved or (self._owner is not None and self._owner.is_paused)

    def evict(self) -> None:
        if self._owner is None:
            self.close()
        else:
            self._owner.evict()

    def buffer_updated(self, count: int, handle: Handle) -> None:  # noqa: C901, PLR0912 - the hot path, straight on purpose
        """Pass every complete frame to `handle`; the view is only valid during the call.

        With a count of 0, try again with what was put aside.
        """
        source, start, end, need = self._scratch, 0, count, self._need
        if not count:
            rest, self.is_starved = self._taken_rest(), False
            if rest is None:
                if need and not self._is_skipped:
                    self._make_room(need)
                return
            source, end = rest, len(rest)
        elif need:
            self._have += count
            if self._have < need:
                self._more(need)
                return
            self._need, self.target = 0, self._scratch
            if self._is_skipped:
                # What follows it has been received with its last bytes.
                self._is_skipped, start = False, count - (self._have - need)
            else:
                frame = self._frame
                assert frame is not None
                if self._sized:
                    handle(frame[:need])
                    return
                source, end = frame, SIZE_BYTES
        assert self.rest is None, "what was put aside comes first"
        position, wanted = start, True
        while wanted and end - position >= SIZE_BYTES:
            size = _unpack_size(source, position)[0]
            if not 0 < size <= self._frame_bytes_max:
                raise ProtocolError(f"a frame of {size} bytes is outside 1 to {self._frame_bytes_max}")
            begin = position + SIZE_BYTES
            if end - begin < size:
                self._is_judged = size <= LIMITED_BYTES or self._owner is None
                if not self._is_judged and self._refuses(size, source[begin:end]):
                    return
                if self._own(min(size, max(FIRST_BYTES, GROWTH * (end - begin)))):
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

    def _more(self, need: int) -> None:
        """Some bytes of a frame have arrived, but not all."""
        frame = self._frame
        if self._is_skipped:
            return
        assert frame is not None
        if not self._is_judged and self._refuses(need, frame[: self._have]):
            return
        if self._have < self.owned_bytes:
            self.target = frame[self._have : need]
        else:
            self._make_room(need)

    def _refuses(self, size: int, beginning: memoryview) -> bool:
        """Ask the owner about a large frame, once enough of it is there; drop what follows if it refuses."""
        assert self._owner is not None
        have = len(beginning)
        if have < JUDGED_BYTES:
            return False
        self._is_judged = True
        if not self._owner.refuses(size, beginning):
            return False
        self._need = 0
        self.release_buffer()
        self._have, self._need, self._is_skipped = have, size, True
        self.target = self._scratch
        return True

    def _put_aside(self, rest: memoryview) -> None:
        # The scratch buffer is shared: what is in it has to be copied.
        self.rest = rest = rest if rest.obj is not self._scratch.obj else memoryview(bytearray(rest))
        self._rest_bytes = len(rest.obj)  # type: ignore[arg-type]  # a bytearray, of which it is a part
        self._request_memory.keep(self._rest_bytes)

    def _taken_rest(self) -> memoryview | None:
        """What was put aside, which is not any more."""
        rest, self.rest = self.rest, None
        size, self._rest_bytes = self._rest_bytes, 0
        if size:
            self._request_memory.keep(-size)
        return rest

    def _keep(self, need: int, beginning: memoryview, *, sized: bool) -> None:
        assert self._frame is not None
        self._frame[: len(beginning)] = beginning
        self._have, self._need, self._sized = len(beginning), need, sized
        self.target = self._frame[self._have : need]

    def _own(self, size: int) -> bool:
        """Have a frame buffer of at least `size`, with nothing in it yet."""
        if self.owned_bytes >= size:
            return True
        self.release_buffer()
        if not self._request_memory.claim(self, size):
            return False
        self._frame = memoryview(bytearray(size))
        self.owned_bytes = size
        return True

    def _make_room(self, need: int) -> None:
        """Let the buffer of a frame grow that has filled it; without bytes for that the frame is starved."""
        frame = self._frame
        assert frame is not None
        size = min(need, GROWTH * self.owned_bytes)
        if not self._request_memory.claim(self, size - self.owned_bytes):
            self.is_starved = True
            return
        self._frame = larger = memoryview(bytearray(size))
        larger[: self._have] = frame[: self._have]
        self.owned_bytes = size
        self.target = larger[self._have :]

    def release_buffer(self) -> None:
        """Give back a buffer that is not in use: called after a frame if it is large, or when idle."""
        if self._need == 0 and self._frame is not None:
            self._request_memory.give_back(self, self.owned_bytes)
            self._frame, self.owned_bytes = None, 0

    def close(self) -> None:
        """Give back all memory: the connection has ended."""
        self._taken_rest()
        self._need, self.target = 0, self._scratch
        self._request_memory.forget(self)
        self.release_buffer()
        # Or the two would wait for the garbage collector, which comes seldom.
        self._owner = None
