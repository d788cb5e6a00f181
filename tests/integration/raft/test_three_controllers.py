"""Three controllers in three processes, over real sockets and files, survive kill -9."""

import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PATIENCE_S = 60


class Controllers:
    """The processes, and everything they have said."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._ports = free_ports(3)
        self._changed = threading.Condition()
        self._processes: dict[int, subprocess.Popen[str]] = {}
        self._listeners: list[threading.Thread] = []
        self._said: list[tuple[int, str]] = []

    def start(self, node: int) -> None:
        directory = self._directory / str(node)
        directory.mkdir(exist_ok=True)
        program = [sys.executable, "-m", "tests.integration.raft.controller_process"]
        arguments = [str(directory), str(node), *map(str, self._ports)]
        process = subprocess.Popen(program + arguments, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        self._processes[node] = process
        self._listeners.append(threading.Thread(target=self._listen, args=(node, process)))
        self._listeners[-1].start()

    def _listen(self, node: int, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                with self._changed:
                    self._said.append((node, line.strip()))
                    self._changed.notify_all()

    def kill(self, node: int) -> None:
        self._processes[node].kill()
        self._processes[node].wait()

    def close(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()
        for listener in self._listeners:
            listener.join()

    def leader(self) -> int:
        """Who said last that it leads."""
        return [node for node, line in self._said if line.startswith("leads")][-1]

    def terms(self) -> list[int]:
        return [int(line.split()[1]) for _, line in self._said if line.startswith("leads")]

    def blocks(self) -> list[int]:
        return [int(line.split()[1]) for _, line in self._said if line.startswith("block")]

    def wait(self, enough: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(enough, PATIENCE_S), self._said[-20:]


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(door.getsockname()[1]) for door in sockets]
    for door in sockets:
        door.close()
    return ports


@pytest.fixture
def controllers(tmp_path: Path) -> Iterator[Controllers]:
    three = Controllers(tmp_path)
    yield three
    three.close()


def test_work_goes_on_when_the_leader_is_killed_and_nothing_is_given_out_twice(
    controllers: Controllers,
) -> None:
    for node in (1, 2, 3):
        controllers.start(node)
    controllers.wait(lambda: len(controllers.blocks()) >= 20)

    for _ in range(3):
        victim, elections = controllers.leader(), len(controllers.terms())
        controllers.kill(victim)
        controllers.wait(lambda: len(controllers.terms()) > elections)  # noqa: B023 - within the turn
        known = len(controllers.blocks())
        controllers.wait(lambda: len(controllers.blocks()) >= known + 20)  # noqa: B023
        controllers.start(victim)

    blocks, terms = controllers.blocks(), controllers.terms()
    assert len(set(blocks)) == len(blocks)
    assert terms == sorted(set(terms))
