"""One node of a local cluster, as the parent sees it."""

import asyncio
import json
import os
import re
import signal
import sys
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from penstock.cli.child import command_line

# Longer lines than this are cut in pieces; events are far shorter.
LINE_BYTES_MAX = 1 << 20
WORDS_KEPT = 20
# An event of level debug or info, as JSON and as text.
_ROUTINE = re.compile(r'\{"time":"[^"]*","level":"(debug|info)"|\S+ \S+ (DEBUG|INFO) ')


class NodeChild:
    """A process that runs one node; `ready` is what its ready line said."""

    def __init__(self, number: int, process: asyncio.subprocess.Process) -> None:
        self.number = number
        self.ready: dict[str, Any] | None = None
        self._process = process
        self._said: deque[str] = deque(maxlen=WORDS_KEPT)

    @classmethod
    async def start(cls, number: int, arguments: Sequence[str]) -> "NodeChild":
        process = await asyncio.create_subprocess_exec(
            *command_line(["up", "--json", *arguments]),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=LINE_BYTES_MAX,
            # Ctrl-C is for the parent, which tells its nodes one after the other.
            start_new_session=True,
        )
        return cls(number, process)

    @property
    def is_running(self) -> bool:
        return self._process.returncode is None

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, number: signal.Signals) -> None:
        if self.is_running:
            self._process.send_signal(number)

    async def await_ready(self) -> bool:
        """Wait for the ready line; False if it ended without one."""
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line.endswith(b"\n"):
            return False
        self.ready = json.loads(line)
        return True

    async def relay(self, write: Callable[[str], None], is_wanted: Callable[[str], bool]) -> None:
        """Pass on what it says and somebody wants to read, until it says no more."""
        stderr = self._process.stderr
        assert stderr is not None
        while line := await _line_of(stderr):
            text = line.decode(errors="replace").rstrip("\n")
            self._said.append(text)
            if not is_wanted(text):
                continue
            # Events in JSON name their node, and would be no JSON with a word before them.
            write(text if text.startswith("{") else f"node {self.number}: {text}")

    async def ended(self) -> int:
        return await self._process.wait()

    @property
    def last_words(self) -> str:
        """The last thing it said to a person, or else its last event."""
        spoken = [line for line in self._said if line and not line.startswith("{")]
        said = spoken or [line for line in self._said if line]
        return said[-1].removeprefix("penstock: ") if said else "it said nothing"

    @property
    def ending(self) -> str:
        """How it ended."""
        code = self._process.returncode
        assert code is not None
        if code >= 0:
            return f"exit code {code}"
        try:
            return signal.Signals(-code).name
        except ValueError:
            return f"signal {-code}"


async def _line_of(stream: asyncio.StreamReader) -> bytes:
    try:
        return await stream.readline()
    except ValueError:
        # A line without end: its beginning was thrown away, and the rest may follow.
        return b"(a line that is too long)\n"


def is_routine(line: str) -> bool:
    """Whether a line is an event that tells of nothing wrong."""
    return _ROUTINE.match(line) is not None


def write_error(line: str) -> None:
    """One line to stderr, whole even if several processes share it."""
    os.write(sys.stderr.fileno(), f"{line}\n".encode())
