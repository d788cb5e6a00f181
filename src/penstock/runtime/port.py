"""The runtime port: all that a service may use of time, peers, disk syncs and other cores.

Rules that hold for every part, in both implementations:

* **One thread.** A node's callbacks run one after the other on one thread, the loop's.
  Every method of the port is called from that thread and returns without waiting.
* **No re-entrancy.** A callback never runs inside the call that asked for it, nor inside
  any other call to the port: when a service calls out, its own state cannot change
  before the call returns.
* **An exception ends the node.** What a callback raises goes to the supervisor; no other
  callback of that node runs afterwards. A service that cannot continue simply raises.
* **Nothing survives the node.** When it ends, accepted frames, running syncs and submitted
  work may or may not have happened, and no callback is called.
* **Order is guaranteed only where a docstring says so.** Completions of different parts
  (a timer, a frame, a sync) come in any order.
"""

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias, TypeVar
from uuid import UUID

from penstock.core.model import Instant, NodeId, PenstockError, Timestamp

Buffer: TypeAlias = bytes | bytearray | memoryview
Callback: TypeAlias = Callable[[], None]
T = TypeVar("T")


class Clock(Protocol):
    """The two clocks of a node."""

    def now(self) -> Instant:
        """Monotonic nanoseconds: never goes back while the node runs, may drift, means nothing elsewhere.

        It keeps running while the node is paused, and starts anywhere after a restart.
        """

    def wall(self) -> Timestamp:
        """Wall-clock milliseconds: may be wrong, and may jump either way at any time."""


class Timer(Protocol):
    """A callback that waits for its deadline."""

    def cancel(self) -> None:
        """Make sure that the callback never runs (again). Always allowed, any number of times."""


class Timers(Protocol):
    """Calls back later."""

    def at(self, deadline: Instant, fire: Callback) -> Timer:
        """Call `fire` once, when the clock has reached `deadline`: never early, perhaps late.

        Timers fire by deadline, those with equal deadlines in the order they were set; a
        deadline in the past is due at once. **Frames go first:** a frame that reached this
        machine before the deadline is handed over before the timer fires, however long the
        node was stalled (up to a bound under flood). An election timeout therefore means
        that the leader was silent, not that we were slow to listen.
        """

    def soon(self, fire: Callback) -> Timer:
        """Call `fire` once after the present callback, behind all earlier calls to `soon`."""

    def when_idle(self, fire: Callback) -> None:
        """Like `soon`, but only once no socket has anything to read, or after five milliseconds.

        For work that serves all requests at once, and had better find all of them.
        """


class Address(NamedTuple):
    """Where a node listens for its peers; port 0 asks for any free one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class NodeIdentity(NamedTuple):
    """A node's identity: a voter is a node id plus the directory that holds its synced state.

    A node that has not joined a cluster yet carries the nil UUID as its cluster id.
    """

    cluster_id: UUID
    node_id: NodeId
    directory_id: UUID


class CloseReason(enum.Enum):
    """Why a link has ended."""

    OURS = "closed by us"
    ENDED = "closed by the peer, or its process died"
    REFUSED = "connection refused: no process listens there"
    UNREACHABLE = "no response in time, or no route"
    REJECTED = "one side rejected the other in the handshake"
    SILENT = "nothing received within the idle timeout"
    MISBEHAVED = "the peer sent an invalid frame"


class Link(Protocol):
    """One connection to a peer, carrying whole frames in both directions."""

    @property
    def is_receiving(self) -> bool:
        """Whether a part of a frame is here, and the rest on its way: large ones take a while."""

    def send(self, *parts: Buffer) -> bool:
        """Offer one frame, the concatenation of `parts`; they may be reused after the call.

        False: not taken, because the link is not open or its send buffer is full; in the
        latter case `drained` follows. True: taken, which does not mean that it arrives.
        """

    def pause(self) -> None:
        """Deliver no more frames until `resume`; a bounded buffer waits, and TCP slows the peer down."""

    def resume(self) -> None:
        """Deliver frames again, those that waited first."""

    def close(self) -> None:
        """End the link: no more `received`; `closed` follows. Frames already taken may be lost."""


class LinkHandler(Protocol):
    """The service's side of its links. One handler may serve many links.

    For each link: `opened` at most once, then any number of `received` and `drained`, and
    exactly one `closed`, after which there are no more calls for the link.

    A service may assume of frames only this: what arrives was sent whole, on this link, by
    the peer named in `opened`. Frames may be lost without the link closing, delayed,
    duplicated or overtaken by later ones. (TCP does better while a link is open, but frames in
    flight when it broke may have met any of these fates by the time of the retry; so requests
    carry correlation ids, and retries have timers.)
    """

    def opened(self, link: Link, peer: NodeIdentity) -> None:
        """The handshake is complete; `link` takes frames now."""

    def received(self, link: Link, frame: bytes) -> None:
        """A frame arrived."""

    def drained(self, link: Link) -> None:
        """A link whose send buffer was full takes frames again."""

    def closed(self, link: Link, ending: CloseReason) -> None:
        """The link has ended, whichever side closed it; also when it never opened."""


class PeerListener(Protocol):
    """A listener for peers."""

    @property
    def address(self) -> Address:
        """Where it listens, with the actual port for port 0."""

    def close(self) -> None:
        """Accept no new links; those that exist stay."""


class Transport(Protocol):
    """Links to the other nodes of the cluster. It handles identity and admission itself."""

    def listen(self, address: Address, handler: LinkHandler) -> PeerListener:
        """Listen now, or raise `AddressUnavailable`."""

    def connect(self, address: Address, handler: LinkHandler) -> Link:
        """Start a link; `opened` or `closed` follows within the connect timeout."""

    def join_cluster(self, cluster_id: UUID) -> None:
        """Use this cluster id in handshakes, and reject other clusters; existing links stay."""


class SyncTarget(Protocol):
    """A file as far as syncing goes: its descriptor for the helper, or else a blocking call."""

    def fileno(self) -> int: ...

    def sync(self) -> None: ...


class DiskSync(Protocol):
    """Makes written bytes durable without stopping the loop."""

    def sync(self, files: Sequence[SyncTarget], done: Callable[[OSError | None], None]) -> None:
        """Sync all `files`, then call `done` once.

        None covers what was written before this call, and nothing written after it. An error
        means that any part of any of the files (or only of those in its `files`, if it has
        such an attribute) may never become durable: it must not be retried as success. Calls
        may run side by side and end in any order. The files stay open until `done`.
        """


class ExecutorKind(enum.Enum):
    """Where slow work runs."""

    DISK = "disk"  # a thread: blocking disk calls that release the GIL
    WORKER = "worker"  # another process: whatever computes


class Job(Protocol):
    """Work that was submitted."""

    def cancel(self) -> None:
        """Cancel: neither `done` nor `failed` will be called. Running work may continue."""


class Executor(Protocol):
    """Runs slow work off the loop."""

    def spawn(
        self,
        work: Callable[[], T],
        done: Callable[[T], None],
        failed: Callable[[Exception], None],
        lane: ExecutorKind,
    ) -> Job:
        """Run `work`, then call either `done` with its result or `failed` with what it raised.

        For `ExecutorKind.WORKER`, `work` is a module-level function or a `functools.partial` of one;
        arguments and result are pickled. On both kinds the work touches nothing but its
        arguments. Jobs run concurrently, and start and end in any order. A full executor calls
        `failed` with `ExecutorFull`, a worker that dies with `WorkerDied`; when the node ends,
        work may be half done.
        """


class Entropy(Protocol):
    """Randomness that no two nodes and no two starts of a node share."""

    def bytes(self, count: int) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Runtime:
    """Everything outside that a service may use, besides its disk."""

    clock: Clock
    timers: Timers
    transport: Transport
    sync: DiskSync
    spawn: Executor
    entropy: Entropy
    # Names the time since the machine started: what a process wrote in it is there after the process has
    # ended, synced or not. Empty where nobody can tell.
    boot_id: str = ""


class Service(Protocol):
    """What a program runs on its runtime."""

    def stop(self, done: Callback) -> None:
        """Stop (called at most once), then call `done`. Taking too long ends the node regardless."""


Program: TypeAlias = Callable[[Runtime], Service]


class AddressUnavailable(PenstockError):
    """The address to listen on is in use, or not of this machine."""


class ExecutorFull(PenstockError):
    """Too much work waits for this executor already."""


class WorkerDied(PenstockError):
    """The worker process ended before the work did."""
