"""Several commands, one answer: gathered in order, cut off by a deadline."""

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from penstock.core.metadata import Reply
from penstock.core.model import MILLISECOND, Instant, Refused, Why
from penstock.runtime import Callback, Runtime

R = TypeVar("R")
TIMED_OUT = Refused(Why.TIMED_OUT, "the cluster has not decided in time")
# Kafka's clients choose their own; this is for callers who do not care.
TIMEOUT_MS = 30_000


class Gathering(Generic[R]):
    """Collects one reply per item and hands them over together, once.

    When all are there and one of them changed something, `settle` is asked to call when the
    change has taken effect. At the deadline, whoever has no reply yet has timed out.
    """

    def __init__(
        self,
        runtime: Runtime,
        kind: type[R],
        count: int,
        done: Callable[[list[R | Refused]], None],
        timeout_ms: int = TIMEOUT_MS,
        settle: Callable[[Callback], None] | None = None,
    ) -> None:
        self._runtime = runtime
        self._kind = kind
        self._missing = count
        self._done: Callable[[list[R | Refused]], None] | None = done
        self._settle = settle
        self._replies: list[R | Refused] = [TIMED_OUT] * count
        deadline = Instant(runtime.clock.now() + max(timeout_ms, 0) * MILLISECOND)
        self._timer = runtime.timers.at(deadline, self._finish)
        if count == 0:
            runtime.timers.soon(self._finish)

    def slot(self, index: int) -> Callable[[Reply], None]:
        """Takes the reply to one item."""

        def fill(reply: Reply) -> None:
            assert isinstance(reply, Refused | self._kind), f"{reply} does not answer this command"
            self._replies[index] = reply
            self._missing -= 1
            if self._missing == 0:
                self._complete()

        return fill

    def refuse(self, index: int, refusal: Refused) -> None:
        """Answer an item that does not become a command."""
        fill = self.slot(index)
        self._runtime.timers.soon(lambda: fill(refusal))

    def _complete(self) -> None:
        changed = any(not isinstance(reply, Refused) for reply in self._replies)
        if self._settle is not None and changed:
            self._settle(self._finish)
        else:
            self._finish()

    def _finish(self) -> None:
        done, self._done = self._done, None
        if done is not None:
            self._timer.cancel()
            done(list(self._replies))


def duplicates(names: Sequence[str]) -> frozenset[str]:
    """The names that occur more than once."""
    seen: dict[str, int] = {}
    for name in names:
        seen[name] = seen.get(name, 0) + 1
    return frozenset(name for name, count in seen.items() if count > 1)
