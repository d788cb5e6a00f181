"""Limits on the memory of a node's connections: incomplete requests, and unread responses.

Requests: the buffer of a request grows with the bytes that arrive, and every step is claimed before
it is allocated. Without a claim a connection pauses reads until others have given theirs back: the
bytes wait in the kernel, and TCP slows the client down.

    0 ├───────────────── any request ─────────────────┤── small ones ──┤ bytes_max

What was read before its connection had to wait is kept, up to 128 KB for each, without a claim. It is
counted, and from a quarter of the limit on connections read little at a time.

Whoever holds bytes while others wait has to make progress: a request that would take longer than
`FINISH_NS` at its pace is given up, the largest first, until there is enough for those who wait. If all
of them wait for each other, one may go beyond the limit, so that it ends.

Responses: a response that exists must be kept; what can be delayed is the next request. So a
connection is read while two things hold: the node's limit is not used up, and its own part is
within its share, which shrinks as the free part does.

    used by others ├──────────────────────────────┤ free ├── a share is a quarter of it ──┤

However many clients do not read, those that come later find something left, and those that read
hold nothing here and are not paused before all of it is used. Files that wait to be sent do not
count: their bytes are not in memory.
"""

from collections.abc import Callable
from typing import Protocol, TypeAlias

from penstock.core.model import MILLISECOND, SECOND, Instant

REQUEST_BYTES_MAX = 256 << 20
Wake: TypeAlias = Callable[[], None]
ANSWER_BYTES_MAX = 256 << 20
SHARE = 4
# How many connections resume per turn of the loop: all at once would overshoot.
WOKEN_PER_TURN = 16
# What is small: a request of so many bytes may use the last part of the limit, an eighth of it.
SMALL_BYTES = 128 << 10
SMALL_PART = 8
# When this part of the limit has been read and is kept until it is served, little is read at a time.
PRESSED_PART = 4
# How often the pace of requests is judged while somebody waits for bytes, and over how long.
JUDGE_MS = 20
PACE_NS = 200 * MILLISECOND
# A request that needs more time than this at its pace is in the way.
FINISH_NS = SECOND
NOT_MARKED = (Instant(0), 0)


class FrameHolder(Protocol):
    """The half-received request of one connection."""

    @property
    def owned_bytes(self) -> int:
        """The memory that it uses."""

    @property
    def have_bytes(self) -> int:
        """How many bytes have arrived."""

    @property
    def missing_bytes(self) -> int:
        """How many have not; 0 if none is expected."""

    @property
    def is_held_back(self) -> bool:
        """Whether nothing can arrive, because the connection waits for memory or for its turn."""

    def evict(self) -> None:
        """Give everything back and close the connection: others wait for its memory."""


class RequestMemoryLimit:
    """Bytes of requests, to be claimed and given back. `soon` calls back after the present turn."""

    def __init__(self, soon: Callable[[Wake], object], bytes_max: int = REQUEST_BYTES_MAX) -> None:
        self._soon = soon
        self._bytes_max = bytes_max
        self._waiting: dict[FrameHolder, Wake] = {}
        self._on_exhausted: list[Callable[[], None]] = []
        self._wake_set = False
        # Who holds bytes, and how many had arrived at an earlier time.
        self._holders: dict[FrameHolder, tuple[Instant, int]] = {}
        self._overdrawn: FrameHolder | None = None
        self.claimed_bytes = 0
        # What connections have read and could not serve yet, beside what they have claimed.
        self.kept_bytes = 0
        # Called while too much is kept, and more of it comes.
        self.on_pressed: Callable[[], None] = lambda: None

    @property
    def is_wanted(self) -> bool:
        """Whether a connection waits for bytes."""
        return bool(self._waiting)

    def on_exhausted(self, thrift: Callable[[], None]) -> None:
        """Call `thrift` when bytes run out: it gives back buffers that are only kept for later."""
        self._on_exhausted.append(thrift)

    def claim(self, holder: FrameHolder, size: int) -> bool:
        """Claim `size` more bytes; returns whether they may be used. One frame is always allowed."""
        if not self._is_free(holder, size):
            for give_back in self._on_exhausted:
                give_back()
            if not self._is_free(holder, size):
                return False
        self.claimed_bytes += size
        self._holders.setdefault(holder, NOT_MARKED)
        return True

    def _is_free(self, holder: FrameHolder, size: int) -> bool:
        others = self.claimed_bytes - holder.owned_bytes
        if not others or holder is self._overdrawn:
            return True
        limit = self._bytes_max
        if holder.owned_bytes + size > SMALL_BYTES:
            limit -= limit // SMALL_PART
        return self.claimed_bytes + size <= limit

    def keep(self, change: int) -> None:
        """Count bytes that have been read already, and are kept until they are served."""
        self.kept_bytes += change
        assert self.kept_bytes >= 0, "more was given back than kept"
        if change > 0 and self.is_pressed:
            self.on_pressed()

    @property
    def is_pressed(self) -> bool:
        """Whether so much is kept that connections should read little at a time."""
        return self.kept_bytes * PRESSED_PART > self._bytes_max

    def give_back(self, holder: FrameHolder, size: int) -> None:
        """Give back what the holder has: all of it."""
        self.claimed_bytes -= size
        assert self.claimed_bytes >= 0, "more was given back than claimed"
        self._holders.pop(holder, None)
        if self._overdrawn is holder:
            self._overdrawn = None
        self._wake_soon()

    def wait(self, holder: FrameHolder, wake: Wake) -> None:
        """Call `wake` when something was given back; it may have to wait again."""
        self._waiting[holder] = wake

    def forget(self, holder: FrameHolder) -> None:
        """Stop waiting: the connection has ended."""
        self._waiting.pop(holder, None)
        if self._overdrawn is holder:
            self._overdrawn = None

    def _wake_soon(self) -> None:
        if self._waiting and not self._wake_set:
            self._wake_set = True
            self._soon(self._wake)

    def _wake(self) -> None:
        self._wake_set = False
        waiting, self._waiting = self._waiting, {}
        for wake in waiting.values():
            wake()

    def judge(self, now: Instant) -> None:
        """Give up requests that are in the way of others; to be called often while `is_wanted`."""
        if not self._waiting:
            return
        if self._overdrawn is not None and not self._overdrawn.missing_bytes:
            self._overdrawn = None
        moving = [holder for holder in self._holders if holder.missing_bytes and not holder.is_held_back]
        slow = [holder for holder in moving if self._is_slow(holder, now)]
        if slow:
            self._evict(slow)
        elif not moving and self._overdrawn is None:
            # All that have something wait for each other: the one that needs least may finish.
            self._overdrawn = min(self._waiting, key=lambda holder: holder.missing_bytes)
            self._wake_soon()

    def _is_slow(self, holder: FrameHolder, now: Instant) -> bool:
        """Whether it would take too long at the pace since an earlier look; False at the first one."""
        marked_at, had_bytes = self._holders[holder]
        elapsed_ns = now - marked_at
        if elapsed_ns > PACE_NS or holder.have_bytes < had_bytes:
            self._holders[holder] = (now, holder.have_bytes)
        if elapsed_ns > 2 * PACE_NS or holder.have_bytes < had_bytes or elapsed_ns < JUDGE_MS * MILLISECOND:
            # It was not looked at for long, it has another frame, or nobody can tell yet.
            return False
        return holder.missing_bytes * elapsed_ns > (holder.have_bytes - had_bytes) * FINISH_NS

    def _evict(self, slow: list[FrameHolder]) -> None:
        wanted = sum(min(holder.missing_bytes, SMALL_BYTES) for holder in self._waiting)
        slow.sort(key=lambda holder: -holder.owned_bytes)
        for holder in slow:
            if wanted <= 0:
                break
            wanted -= holder.owned_bytes
            holder.evict()


class ResponseMemoryLimit:
    """Bytes of responses in memory, and connections that wait until they are fewer.

    `soon` calls back after the present turn.
    """

    def __init__(self, soon: Callable[[Wake], object], bytes_max: int = ANSWER_BYTES_MAX) -> None:
        self._soon = soon
        self._bytes_max = bytes_max
        self._waiting: dict[Wake, None] = {}
        self._wake_set = False
        self.held_bytes = 0

    @property
    def is_full(self) -> bool:
        return self.held_bytes >= self._bytes_max

    def refuses(self, own_bytes: int) -> bool:
        """Whether a connection that holds `own_bytes` must wait before its next request."""
        free = self._bytes_max - self.held_bytes
        return free <= 0 or own_bytes * SHARE > free

    def moved(self, change: int) -> None:
        """Count a change in the bytes held."""
        self.held_bytes += change
        assert self.held_bytes >= 0, "more was released than was held"
        if change < 0:
            self._wake_soon()

    def wait(self, wake: Wake) -> None:
        """Call `wake` when the limit is no longer reached: in the order of these calls."""
        self._waiting[wake] = None
        self._wake_soon()

    def forget(self, wake: Wake) -> None:
        """Stop waiting: the connection has ended."""
        self._waiting.pop(wake, None)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def _wake_soon(self) -> None:
        if self._waiting and not self._wake_set and not self.is_full:
            self._wake_set = True
            self._soon(self._wake)

    def _wake(self) -> None:
        self._wake_set = False
        for wake in list(self._waiting)[:WOKEN_PER_TURN]:
            if self.is_full:
                return
            del self._waiting[wake]
            wake()
        self._wake_soon()
