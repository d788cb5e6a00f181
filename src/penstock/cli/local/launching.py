"""The parent of a local cluster: starts the nodes, watches them, and stops them in order."""

import asyncio
import enum
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

from penstock.cli.local.node import NodeChild, is_routine, write_error
from penstock.cli.output import counted
from penstock.core.model import PenstockError

STOP_SECONDS = 20
LOOK_SECONDS = 30
DONE, FAILED = 0, 1


class ClusterNotStarted(PenstockError):
    """A node ended before all were ready."""


class What(enum.Enum):
    """What can happen to the parent."""

    READY = "a node is ready"
    ENDED = "a node has ended"
    TOLD = "a signal asks for the end"
    OVERDUE = "a node that was asked to stop has not"


class Happening(NamedTuple):
    """One of them, and whom it concerns."""

    what: What
    child: NodeChild | None = None


class LocalCluster:
    """Handles one happening after the other."""

    def __init__(self, ready: Callable[[Sequence[NodeChild]], None], *, is_verbose: bool = False) -> None:
        self._announce = ready
        self._is_verbose = is_verbose
        self._children: list[NodeChild] = []
        self._left: list[NodeChild] = []
        # Bounded by what can happen: a node is ready once and ends once.
        self._happenings: asyncio.Queue[Happening] = asyncio.Queue()
        self._is_ready = False
        self._is_stopping = False
        self._hurried = False
        self._failure: str | None = None

    async def run(self, commands: Sequence[tuple[int, Sequence[str]]]) -> int:
        """Run nodes with these numbers and arguments; the answer is the exit code."""
        loop = asyncio.get_running_loop()
        for asked in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if asked is signal.SIGHUP and signal.getsignal(asked) is signal.SIG_IGN:
                continue  # `nohup`: the end of the terminal is not the end of the cluster
            loop.add_signal_handler(asked, self._happenings.put_nowait, Happening(What.TOLD))
        async with asyncio.TaskGroup() as group:
            for number, arguments in commands:
                child = await NodeChild.start(number, arguments)
                self._children.append(child)
                self._left.append(child)
                group.create_task(self._follow(child))
            while self._left:
                await self._next()
        if self._failure is not None:
            raise ClusterNotStarted(self._failure)
        if not self._is_stopping:
            return FAILED
        write_error(f"penstock: stopped {counted(len(self._children), 'node')}")
        return DONE

    async def _follow(self, child: NodeChild) -> None:
        """Report what happens to a child, from its start to its end."""
        async with asyncio.TaskGroup() as group:
            relayed = group.create_task(child.relay(write_error, self._is_wanted))
            if await child.await_ready():
                self._happenings.put_nowait(Happening(What.READY, child))
            await child.ended()
            # Its last words may still be on their way; something it has started may hold the pipe open.
            with suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(relayed), 1)
            relayed.cancel()
        self._happenings.put_nowait(Happening(What.ENDED, child))

    def _is_wanted(self, line: str) -> bool:
        """Nodes that stop one after the other tell at length how the rest takes over: not this time."""
        return self._is_verbose or not self._is_stopping or not is_routine(line)

    async def _next(self) -> None:
        try:
            happening = await asyncio.wait_for(self._happenings.get(), LOOK_SECONDS)
        except TimeoutError:
            if not self._is_ready and not self._is_stopping:
                waiting = " and ".join(f"node {child.number}" for child in self._children if not child.ready)
                write_error(f"penstock: still waiting for {waiting}")
            return
        match happening:
            case Happening(What.READY):
                self._one_ready()
            case Happening(What.ENDED, child):
                assert child is not None
                self._one_ended(child)
            case Happening(What.OVERDUE, child):
                assert child is not None
                if child.is_running:
                    write_error(f"penstock: node {child.number} did not stop in {STOP_SECONDS} s: killing it")
                    child.send(signal.SIGKILL)
            case Happening(What.TOLD):
                self._told_to_stop()

    def _one_ready(self) -> None:
        if not self._is_ready and not self._is_stopping and all(child.ready for child in self._children):
            self._is_ready = True
            self._announce(self._children)

    def _one_ended(self, child: NodeChild) -> None:
        self._left.remove(child)
        if self._is_stopping:
            self._stop_next()
        elif not self._is_ready:
            self._failure = f"node {child.number} did not start: {child.last_words}"
            self._is_stopping = True
            self._stop_next()
        else:
            write_error(f"penstock: node {child.number} ended ({child.ending}): {child.last_words}")
            write_error(f"penstock: {self._account()}")

    def _account(self) -> str:
        """Who is left, and what that means."""
        alive, all_ = len(self._left), len(self._children)
        if not alive:
            return "no node is left"
        left = f"{alive} of {all_} nodes {'is' if alive == 1 else 'are'} left"
        if self._has_majority:
            return f"{left}, a majority: the cluster goes on"
        return f"{left}, no majority: nothing can be written or changed until more are back"

    def _told_to_stop(self) -> None:
        if self._is_stopping and not self._hurried:
            # Asked twice: no more waiting for one another.
            self._hurried = True
            for child in self._left:
                self._ask_to_stop(child)
            return
        self._is_stopping = True
        self._stop_next()

    def _stop_next(self) -> None:
        """Ask the next one to stop: one after the other while a majority can see each off, then all."""
        if self._hurried:
            return
        if not self._has_majority:
            self._hurried = True
        for child in self._left if self._hurried else self._left[-1:]:
            self._ask_to_stop(child)

    @property
    def _has_majority(self) -> bool:
        return len(self._left) * 2 > len(self._children)

    def _ask_to_stop(self, child: NodeChild) -> None:
        child.send(signal.SIGTERM)
        overdue = Happening(What.OVERDUE, child)
        asyncio.get_running_loop().call_later(STOP_SECONDS, self._happenings.put_nowait, overdue)
