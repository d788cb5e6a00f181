"""Worker processes, shared between clients: whoever makes much work waits behind itself, not before others.

    client A   ▓▓▓▓▓▓▓▓▓▓  ▓▓▓▓▓▓▓▓▓▓          one job of a client at a time, and of those
    client B   ▒             ▒                  that wait the one whose client used least
    heavy      ██████████████████████           one job that may take long, of whoever it is

Workers are few, and compaction may have one of them for minutes. A job is light if it takes milliseconds.
Records may unpack to far more than their batch: `unpack` allows for little at first, and what proves to need
more is begun again as a heavy job. Light jobs go first, and of the heavy ones one runs at a time, so that the
next light job finds a worker.

Time is shared by start tags, as in start-time fair queueing: the tag of a client's next job is where its last
one ended in the time that it used, but never before that of the job that was started last. A client that
comes back gets no credit for the time it was away, and none of them has to be remembered for long.
"""

from collections import deque
from collections.abc import Callable, Hashable
from functools import partial
from heapq import heappop, heappush
from typing import Any, NamedTuple

from penstock.core.model import PenstockError
from penstock.core.records import RecordsTooLarge
from penstock.core.records.compression import LIMIT_BYTES
from penstock.runtime import ExecutorKind, Runtime

JOBS_MAX = 2
HEAVY_JOBS_MAX = 1
# What a worker unpacks and looks through in milliseconds.
LIGHT_BYTES = 4 << 20
# What jobs that wait or run keep in memory.
BYTES_MAX = 256 << 20
CLIENT_BYTES_MAX = 64 << 20
# Clients without a job whose tags are remembered.
IDLE_CLIENTS_MAX = 1_000


class WorkersBusy(PenstockError):
    """More waits for the workers than the node keeps."""


class ClientJob(NamedTuple):
    """Work for a worker process, as `Executor.spawn` takes it."""

    work: Callable[[], Any]
    done: Callable[[Any], None]
    failed: Callable[[Exception], None]
    size_bytes: int
    is_heavy: bool


class _Client:
    __slots__ = ("bytes", "is_running", "jobs", "tag")

    def __init__(self, tag: int) -> None:
        self.tag = tag
        self.jobs: deque[ClientJob] = deque()
        self.is_running = False
        self.bytes = 0


class WorkerShare:
    """Hands jobs to the workers, a few at a time."""

    def __init__(self, runtime: Runtime) -> None:
        self._spawn = runtime.spawn
        self._clock = runtime.clock
        self._timers = runtime.timers
        self._clients: dict[Hashable, _Client] = {}
        # Clients whose next job is light or heavy, and that have none running: by tag, then as they came.
        self._light: list[tuple[int, int, Hashable]] = []
        self._heavy: list[tuple[int, int, Hashable]] = []
        self._order = 0
        self._tag = 0
        self._running = 0
        self._heavy_running = 0
        self._bytes = 0

    def submit(self, client: Hashable, job: ClientJob) -> None:
        """Run the job when it is the client's turn; if too much waits already it fails with WorkersBusy."""
        known = self._clients.get(client)
        held, size = 0 if known is None else known.bytes, job.size_bytes
        # One job is always taken, however large.
        if (held and held + size > CLIENT_BYTES_MAX) or (self._bytes and self._bytes + size > BYTES_MAX):
            busy = f"{held} bytes of this client and {self._bytes} of all wait for a worker already"
            self._timers.soon(partial(job.failed, WorkersBusy(busy)))
            return
        if known is None:
            known = self._clients[client] = _Client(self._tag)
        known.bytes += size
        self._bytes += size
        known.jobs.append(job)
        if not known.is_running and len(known.jobs) == 1:
            self._line_up(client, known)
        self._start()

    def unpack(
        self,
        client: Hashable,
        work: Callable[..., Any],
        done: Callable[[Any], None],
        failed: Callable[[Exception], None],
        size_bytes: int,
        *,
        is_heavy: bool = False,
    ) -> None:
        """Run `work`, which takes `limit_bytes` and raises RecordsTooLarge where records unpack to more.

        What needs more than a light job may is begun again as a heavy one, with the limit of all readers.
        """

        def broke(error: Exception) -> None:
            if isinstance(error, RecordsTooLarge) and not is_heavy:
                self.unpack(client, work, done, failed, size_bytes, is_heavy=True)
            else:
                failed(error)

        limited = partial(work, limit_bytes=LIMIT_BYTES if is_heavy else LIGHT_BYTES)
        self.submit(client, ClientJob(limited, done, broke, size_bytes, is_heavy))

    def _line_up(self, client: Hashable, known: _Client) -> None:
        known.tag = max(known.tag, self._tag)
        self._order += 1
        waiting = self._heavy if known.jobs[0].is_heavy else self._light
        heappush(waiting, (known.tag, self._order, client))

    def _start(self) -> None:
        while self._running < JOBS_MAX:
            if self._light:
                self._run(heappop(self._light)[2])
            elif self._heavy and self._heavy_running < HEAVY_JOBS_MAX:
                self._run(heappop(self._heavy)[2])
            else:
                return

    def _run(self, client: Hashable) -> None:
        known = self._clients[client]
        job = known.jobs.popleft()
        known.is_running = True
        self._tag = max(self._tag, known.tag)
        self._running += 1
        self._heavy_running += job.is_heavy
        began = self._clock.now()

        def ended() -> None:
            known.is_running = False
            known.tag += self._clock.now() - began
            known.bytes -= job.size_bytes
            self._bytes -= job.size_bytes
            self._running -= 1
            self._heavy_running -= job.is_heavy
            if known.jobs:
                self._line_up(client, known)
            elif len(self._clients) > IDLE_CLIENTS_MAX:
                self._forget()

        def done(result: object) -> None:
            ended()
            job.done(result)
            self._start()

        def failed(error: Exception) -> None:
            ended()
            job.failed(error)
            self._start()

        self._spawn.spawn(job.work, done, failed, ExecutorKind.WORKER)

    def _forget(self) -> None:
        """Forget the clients that have no job; those among them that used much lately start even."""
        self._clients = {
            client: known for client, known in self._clients.items() if known.jobs or known.is_running
        }
