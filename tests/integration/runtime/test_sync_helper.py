"""The helper process: it syncs what it is asked to, and nothing is ever called durable without it."""

import asyncio
import errno
import gc
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import uvloop

from penstock.runtime.port import SyncTarget
from penstock.runtime.sync_helper import HelperDied, InlineSync, SyncFailed, SyncHelper
from penstock.storage.disk import File, PosixDisk

PATIENCE_S = 60


class Node:
    """A loop with a helper, and a way to wait for callbacks."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.deaths: list[OSError] = []
        self.helper = SyncHelper.start(loop, self.deaths.append)

    def sync(self, *files: SyncTarget) -> OSError | None:
        return self.wait(1, lambda done: self.helper.sync(files, done))[0]

    def wait(
        self, count: int, ask: Callable[[Callable[[OSError | None], None]], None]
    ) -> list[OSError | None]:
        """Run the loop until `count` callbacks have come to what `ask` asks for."""
        answers: list[OSError | None] = []

        async def until_answered() -> None:
            enough = asyncio.Event()

            def done(error: OSError | None) -> None:
                answers.append(error)
                if len(answers) >= count:
                    enough.set()

            ask(done)
            assert answers == [], "called back inside the call"
            await asyncio.wait_for(enough.wait(), PATIENCE_S)

        self.loop.run_until_complete(until_answered())
        return answers

    def descriptors_of_the_helper(self) -> int:
        return len(os.listdir(f"/proc/{self.helper.pid}/fd"))


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def node(request: pytest.FixtureRequest) -> Iterator[Node]:
    loop = request.param()
    node = Node(loop)
    yield node
    node.helper.close()
    loop.close()


def written_files(root: Path, count: int) -> list[File]:
    disk = PosixDisk(str(root))
    files = [disk.open(str(number), create=True) for number in range(count)]
    for file in files:
        file.append(b"content")
    return files


class Pipe:
    """A descriptor that the kernel refuses to sync."""

    def __init__(self) -> None:
        self.reading, self.writing = os.pipe()

    def fileno(self) -> int:
        return self.writing

    def sync(self) -> None:
        raise AssertionError("the helper syncs by descriptor")

    def close(self) -> None:
        os.close(self.reading)
        os.close(self.writing)


@pytest.mark.parametrize("count", [0, 1, 2, 40, 600])
def test_a_round_of_any_size_is_answered_once(node: Node, tmp_path: Path, count: int) -> None:
    files = written_files(tmp_path, count)

    first, second = node.sync(*files), node.sync(*files)

    assert (first, second) == (None, None)
    for file in files:
        file.close()


def openings_of(process: int, path: Path) -> list[int]:
    """With which access mode a process has a file open."""
    found = []
    for number in os.listdir(f"/proc/{process}/fd"):
        if os.readlink(f"/proc/{process}/fd/{number}") == str(path):
            lines = Path(f"/proc/{process}/fdinfo/{number}").read_text().splitlines()
            flags = next(line.split()[1] for line in lines if line.startswith("flags:"))
            found.append(int(flags, 8) & os.O_ACCMODE)
    return found


def test_the_helper_has_an_opening_of_its_own_so_it_uses_up_nobody_elses_failure(
    node: Node, tmp_path: Path
) -> None:
    (file,) = written_files(tmp_path, 1)

    assert node.sync(file) is None

    assert openings_of(node.helper.pid, tmp_path / "0") == [os.O_RDONLY]


def test_more_files_than_the_helper_keeps_take_turns(node: Node, tmp_path: Path) -> None:
    class Alias:
        def __init__(self, file: File) -> None:
            self.fileno = file.fileno
            self.sync = file.sync

    (file,) = written_files(tmp_path, 1)
    aliases = [Alias(file) for _ in range(3000)]

    answers = [node.sync(*aliases), node.sync(*aliases[:5])]

    assert answers == [None, None]
    assert node.descriptors_of_the_helper() < 1100
    file.close()


def test_the_kernels_refusal_reaches_the_caller(node: Node, tmp_path: Path) -> None:
    pipe, files = Pipe(), written_files(tmp_path, 300)

    failed = node.sync(*files, pipe)
    fine = node.sync(*files)

    assert isinstance(failed, SyncFailed)
    assert failed.errno == errno.EINVAL
    assert failed.files == (pipe,)
    assert fine is None
    pipe.close()
    for file in files:
        file.close()


def test_a_closed_file_is_not_called_durable(node: Node, tmp_path: Path) -> None:
    file, good = written_files(tmp_path, 2)
    file.close()

    failed = node.sync(good, file)

    assert isinstance(failed, SyncFailed)
    assert failed.errno == errno.EBADF
    assert failed.files == (file,)
    good.close()


def test_a_directory_that_is_gone_hurts_nobody_else(node: Node, tmp_path: Path) -> None:
    disk, (file,) = PosixDisk(str(tmp_path / "root")), written_files(tmp_path, 1)
    names = Names(disk, True)

    failed = node.sync(file, names)

    assert isinstance(failed, SyncFailed)
    assert failed.files == (names,)
    file.close()


class Names:
    """A directory, as the log hands it over."""

    def __init__(self, disk: PosixDisk, lends_a_descriptor: bool) -> None:
        self.blocking_syncs = 0
        self._disk = disk
        self._lends_a_descriptor = lends_a_descriptor

    def fileno(self) -> int:
        return self._disk.directory_fileno("") if self._lends_a_descriptor else -1

    def sync(self) -> None:
        self.blocking_syncs += 1
        self._disk.sync_directory("")


def test_directories_are_synced_with_and_without_a_descriptor(node: Node, tmp_path: Path) -> None:
    disk, (file,) = PosixDisk(str(tmp_path)), written_files(tmp_path, 1)
    lent, unlent = Names(disk, True), Names(disk, False)

    answers = [node.sync(file, lent), node.sync(file, unlent), node.sync(unlent)]

    assert answers == [None, None, None]
    assert (lent.blocking_syncs, unlent.blocking_syncs) == (0, 2)
    file.close()


def test_rounds_are_answered_in_order_however_many_wait(node: Node, tmp_path: Path) -> None:
    files = written_files(tmp_path, 3)
    order: list[int] = []
    os.kill(node.helper.pid, signal.SIGSTOP)

    def ask(done: Callable[[OSError | None], None]) -> None:
        def answered(number: int, error: OSError | None) -> None:
            order.append(number)
            done(error)

        # The socket takes a few hundred messages; the rest has to wait its turn.
        for number in range(2000):
            node.helper.sync(files, partial(answered, number))
        os.kill(node.helper.pid, signal.SIGCONT)

    answers = node.wait(2000, ask)

    assert set(answers) == {None}
    assert order == list(range(2000))
    for file in files:
        file.close()


def test_a_file_that_was_closed_before_the_helper_got_it_is_not_called_durable(
    node: Node, tmp_path: Path
) -> None:
    waiting, closed = written_files(tmp_path, 2)
    os.kill(node.helper.pid, signal.SIGSTOP)

    def ask(done: Callable[[OSError | None], None]) -> None:
        for _ in range(2000):  # more than the socket takes, so that what follows has to wait
            node.helper.sync([waiting], lambda _: None)
        node.helper.sync([closed], done)
        closed.close()
        os.kill(node.helper.pid, signal.SIGCONT)

    (error,) = node.wait(1, ask)

    assert isinstance(error, SyncFailed)
    assert error.files == (closed,)
    waiting.close()


def test_a_dead_helper_fails_what_waits_and_what_comes_later(node: Node, tmp_path: Path) -> None:
    files = written_files(tmp_path, 2)
    node.sync(*files)
    os.kill(node.helper.pid, signal.SIGSTOP)

    def ask(done: Callable[[OSError | None], None]) -> None:
        node.helper.sync(files, done)
        node.helper.sync(files, done)
        os.kill(node.helper.pid, signal.SIGKILL)

    waiting = node.wait(2, ask)
    later = [node.sync(*files), node.sync()]

    assert [type(error) for error in waiting + later] == [HelperDied] * 4
    assert node.deaths == [node.helper.failure]
    for file in files:
        file.close()


def test_the_helper_outlives_signals_meant_for_the_node(node: Node, tmp_path: Path) -> None:
    (file,) = written_files(tmp_path, 1)
    node.sync(file)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(node.helper.pid, number)

    assert node.sync(file) is None
    assert os.getpgid(node.helper.pid) != os.getpgid(0)
    file.close()


def test_the_helper_closes_files_that_are_gone(node: Node, tmp_path: Path) -> None:
    (first, *others) = written_files(tmp_path, 50)
    node.sync(first)
    alone = node.descriptors_of_the_helper()

    node.sync(first, *others)
    together = node.descriptors_of_the_helper()
    for file in others:
        file.close()
    others.clear()
    del file
    gc.collect()
    node.sync(first)

    assert (together, node.descriptors_of_the_helper()) == (alone + 49, alone)
    first.close()


def test_the_helper_ends_with_its_parent() -> None:
    script = (
        "import asyncio, os, signal\n"
        "from penstock.runtime.sync_helper import SyncHelper\n"
        "print(SyncHelper.start(asyncio.new_event_loop()).pid, flush=True)\n"
        "input()\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdin is not None
        helper = os.pidfd_open(int(parent.stdout.readline()))

        parent.stdin.write("go\n")
        parent.stdin.flush()
        ended, _, _ = select.select([helper], [], [], PATIENCE_S)

    assert ended == [helper]
    assert parent.returncode == -signal.SIGKILL
    os.close(helper)


def test_closing_ends_the_helper(tmp_path: Path) -> None:
    loop = asyncio.new_event_loop()
    node = Node(loop)
    pid = node.helper.pid

    node.helper.close()
    node.helper.close()

    assert not Path(f"/proc/{pid}").exists()
    assert node.deaths == []
    loop.close()


def test_inline_sync_tells_the_first_failure_afterwards(tmp_path: Path) -> None:
    good, closed = written_files(tmp_path, 2)
    closed.close()
    soon: list[Callable[[], None]] = []
    answers: list[OSError | None] = []
    sync = InlineSync(soon.append)

    sync.sync([good], answers.append)
    sync.sync([good, closed], answers.append)
    before = list(answers)
    for callback in soon:
        callback()

    assert before == []
    assert answers[0] is None
    assert answers[1] is not None
    assert answers[1].errno == errno.EBADF
    good.close()
