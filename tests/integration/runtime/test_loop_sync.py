"""When a file is synced on the loop itself, and when that is left to the helper."""

import asyncio
import errno
import socket
from collections.abc import Callable, Iterator, Sequence

import pytest
import uvloop

from penstock.core.model import MILLISECOND, SECOND, Instant, Timestamp
from penstock.runtime.port import SyncTarget
from penstock.runtime.sync_helper import LoopSync, SupervisedSync, SyncFailed
from penstock.runtime.timers import LoopSockets
from penstock.storage.disk import DiskFailed


class HandClock:
    """Time that passes when a file says how long its sync took."""

    def __init__(self) -> None:
        self.instant = 5 * SECOND

    def now(self) -> Instant:
        return Instant(self.instant)

    def wall(self) -> Timestamp:
        return Timestamp(0)


class TimedFile:
    """A file whose sync takes as long as it says, and fails if asked to."""

    def __init__(self, clock: HandClock) -> None:
        self._clock = clock
        self.takes_ns = MILLISECOND // 10
        self.fails = False
        self.during: Callable[[], object] = lambda: None
        self.syncs = 0

    def fileno(self) -> int:
        return -1

    def sync(self) -> None:
        self.syncs += 1
        self._clock.instant += self.takes_ns
        self.during()
        if self.fails:
            raise DiskFailed("sync", "orders", errno.EIO)


class Bench:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.clock = HandClock()
        self.file = TimedFile(self.clock)
        self.peers: list[str] = []
        self.on_loop = LoopSync(LoopSockets(loop), self.clock, self.peers)

    def sync(self, *files: TimedFile) -> OSError | bool:
        return self.on_loop.may_sync(files) and self.on_loop.sync(files)


@pytest.fixture
def bench() -> Iterator[Bench]:
    loop = uvloop.new_event_loop()
    yield Bench(loop)
    loop.close()


def test_a_single_file_is_synced_on_an_idle_loop(bench: Bench) -> None:
    assert [bench.sync(bench.file) for _ in range(3)] == [True, True, True]
    assert bench.file.syncs == 3


def test_several_files_are_left_to_the_helper(bench: Bench) -> None:
    assert bench.sync(bench.file, TimedFile(bench.clock)) is False
    assert bench.file.syncs == 0


def test_a_loop_that_has_something_to_read_is_not_stopped(bench: Bench) -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    seen: list[OSError | bool] = []

    def turn() -> None:
        # In the second turn: the loop watches a socket only from its next look at them on.
        seen.append(bench.sync(bench.file))
        theirs.send(b"a request")
        seen.append(bench.sync(bench.file))

    def readable() -> None:
        ours.recv(100)
        seen.append(bench.sync(bench.file))
        bench.loop.stop()

    bench.loop.add_reader(ours, readable)
    bench.loop.call_soon(lambda: bench.loop.call_soon(turn))
    bench.loop.run_forever()

    assert seen == [True, False, True]
    bench.loop.remove_reader(ours)
    ours.close()
    theirs.close()


def test_a_loop_that_kept_somebody_waiting_is_spared(bench: Bench) -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    bench.file.during = lambda: theirs.send(b"a request")
    seen: list[OSError | bool] = []

    def readable() -> None:
        ours.recv(100)
        bench.file.during = lambda: None
        seen.append(bench.sync(bench.file))
        bench.clock.instant += 2 * MILLISECOND
        seen.append(bench.sync(bench.file))
        bench.loop.stop()

    bench.loop.add_reader(ours, readable)
    bench.loop.call_soon(lambda: bench.loop.call_soon(lambda: seen.append(bench.sync(bench.file))))
    bench.loop.run_forever()

    assert seen == [True, False, True]
    bench.loop.remove_reader(ours)
    ours.close()
    theirs.close()


def test_a_node_with_peers_syncs_nothing_on_its_loop(bench: Bench) -> None:
    bench.peers.append("a follower")
    with_peers = bench.sync(bench.file)
    bench.peers.clear()

    assert with_peers is False
    assert bench.sync(bench.file) is True


def test_after_a_slow_sync_the_loop_is_spared_in_proportion(bench: Bench) -> None:
    bench.file.takes_ns = 10 * MILLISECOND

    slow = bench.sync(bench.file)
    right_after = bench.sync(bench.file)
    bench.clock.instant += 150 * MILLISECOND
    still = bench.sync(bench.file)
    bench.clock.instant += 20 * MILLISECOND

    assert (slow, right_after, still) == (True, False, False)
    assert bench.sync(bench.file) is True


def test_a_disk_that_stays_slow_is_tried_ever_more_seldom(bench: Bench) -> None:
    def tries_in(milliseconds: int) -> int:
        return sum(_tried(bench, MILLISECOND) for _ in range(milliseconds))

    bench.file.takes_ns = 2 * MILLISECOND
    first, later = tries_in(1_000), tries_in(1_000)
    bench.file.takes_ns = MILLISECOND // 10
    tries_in(5_000)

    assert 1 < first < 8
    assert later <= 1
    assert tries_in(10) == 10


def _tried(bench: Bench, then_ns: int) -> bool:
    tried = bench.sync(bench.file) is True
    bench.clock.instant += then_ns
    return tried


def test_a_failure_is_reported_with_its_file(bench: Bench) -> None:
    bench.file.fails = True

    failed = bench.sync(bench.file)

    assert isinstance(failed, SyncFailed)
    assert (failed.errno, failed.files) == (errno.EIO, (bench.file,))


def test_a_loop_that_cannot_be_asked_leaves_everything_to_the_helper() -> None:
    loop = asyncio.new_event_loop()
    bench = Bench(loop)

    assert bench.sync(bench.file) is False
    loop.close()


class HandHelper:
    """A helper that is asked in vain: the test looks at what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Sequence[SyncTarget]] = []

    def sync(self, files: Sequence[SyncTarget], _done: Callable[[OSError | None], None]) -> None:
        self.asked.append(files)


def deliver(callback: Callable[..., None], *arguments: object) -> None:
    callback(*arguments)


def test_a_node_syncs_here_after_the_call_and_tells_in_the_same_breath(bench: Bench) -> None:
    helper, told = HandHelper(), list[tuple[int, OSError | None]]()
    port = SupervisedSync(bench.loop, helper, bench.on_loop, deliver)
    bench.file.fails = True

    def done(error: OSError | None) -> None:
        told.append((bench.file.syncs, error))
        bench.loop.stop()

    def ask() -> None:
        port.sync([bench.file], done)
        told.append((bench.file.syncs, None))
        # Whoever comes next finds the owner notified already.
        bench.loop.call_soon(lambda: told.append((bench.file.syncs, None)))

    bench.loop.call_soon(ask)
    bench.loop.run_forever()

    assert helper.asked == []
    assert [syncs for syncs, _ in told] == [0, 1, 1]
    assert isinstance(told[1][1], SyncFailed)


def test_a_node_asks_its_helper_for_what_the_loop_had_better_not_do(bench: Bench) -> None:
    helper, other = HandHelper(), TimedFile(bench.clock)
    port = SupervisedSync(bench.loop, helper, bench.on_loop, deliver)

    port.sync([bench.file, other], lambda _: None)
    bench.peers.append("a follower")
    port.sync([bench.file], lambda _: None)

    assert helper.asked == [[bench.file, other], [bench.file]]
    assert bench.file.syncs == 0
