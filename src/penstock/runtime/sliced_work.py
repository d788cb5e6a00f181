"""Long work on the loop, cut into slices so that others are served in between.

A piece of work is a generator: it yields where it can be interrupted, after a millisecond or so. All of a
node's pieces take turns, and share a few milliseconds of each turn of the loop however many they are: work
takes longer the more there is of it, and everything else is served as before.

Whose turn it is depends on whose work it is: clients take turns, not pieces of work (see `fair_queue`), and
what a slice has taken is charged to its client.
"""

from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from penstock.core.model import MILLISECOND, Instant
from penstock.runtime.fair_queue import Account, FairQueue
from penstock.runtime.loop_watch import HELD_NS

Slices: TypeAlias = Iterator[None]
# What all long work together takes of a turn of the loop; the slice that exceeds it is the last one.
TURN_NS = 2 * MILLISECOND
SLICES_PER_TURN_MAX = 2


class NodeAccount:
    """The node itself, which is charged nothing."""

    client = address = None

    def charge(self, elapsed_ns: int) -> None:
        pass


NODE_ACCOUNT: Final = NodeAccount()


class SlicedWork:
    """The long work of one node. `soon` calls back after the other connections have had their turn."""

    def __init__(
        self,
        now: Callable[[], Instant],
        soon: Callable[[Callable[[], None]], object],
        turn_ns: int = TURN_NS,
    ) -> None:
        self._turn_ns = turn_ns
        self._now = now
        self._soon = soon
        self._waiting: FairQueue[Slices, Account] = FairQueue()
        self._turn_set = False
        # What held the loop, when something did.
        self.held_by = ""

    def __len__(self) -> int:
        return len(self._waiting)

    def run(self, slices: Slices, account: Account = NODE_ACCOUNT) -> None:
        """Do all of it, beginning in the next turn of the loop."""
        self._waiting.push(account, slices)
        if not self._turn_set:
            self._turn_set = True
            self._soon(self._turn)

    def _turn(self) -> None:
        waiting, now = self._waiting, self._now
        began_ns = now()
        end_ns = began_ns + self._turn_ns
        for _ in range(SLICES_PER_TURN_MAX):
            slices, account = waiting.pop()
            if next(slices, self) is not self:
                waiting.push(account, slices)
            ended_ns = now()
            elapsed_ns, began_ns = ended_ns - began_ns, ended_ns
            waiting.settle(max(elapsed_ns, 1))
            account.charge(elapsed_ns)
            if elapsed_ns > HELD_NS:
                self.held_by = getattr(slices, "__qualname__", "")
            if not waiting:
                self._turn_set = False
                return
            if ended_ns >= end_ns:
                break
        self._soon(self._turn)
