"""Who stands between the loop and a node's callbacks, and ends the node in order.

Every callback of a node is delivered through its supervisor. The first exception
ends the node: from then on nothing is delivered, so that no other part of it acts
on a state that a failed assert has just called impossible. What was opened is closed in
reverse order, whichever way the node ends.
"""

import asyncio
import signal
import traceback
from collections.abc import Callable, Coroutine
from typing import Any

from penstock.core.model import MILLISECOND, SECOND
from penstock.observability import log
from penstock.runtime.last_resort import LastResort
from penstock.runtime.port import Callback, Service

# A node that is told to stop is gone after five seconds, whatever it is doing:
#
#     0 s ── the service winds down ── 4 s ── what was opened is closed ── 4.8 s: the last resort
STOP_GRACE_NS = 4 * SECOND
STOP_LIMIT_NS = 4_800 * MILLISECOND


class Supervisor:
    """Delivers the callbacks of one node until the node is over."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        over: Callback | None = None,
        last_resort: LastResort | None = None,
    ) -> None:
        self._loop = loop
        self._last_resort = last_resort
        self._tell_over = loop.stop if over is None else over
        self._closers: list[Callback] = []
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._service: Service | None = None
        self._stopping = False
        self.is_over = False
        self.failure: BaseException | None = None

    def deliver(self, callback: Callable[..., None], *arguments: Any) -> None:
        """Run a callback of the node, unless the node is over; what it raises ends the node."""
        if self.is_over:
            return
        try:
            callback(*arguments)
        except Exception as failure:
            self.fail(failure)

    def own(self, close: Callback) -> None:
        """Call `close` when the node is over, in reverse order of these calls."""
        self._closers.append(close)

    def adopt(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run a task of the node (a foreign server that speaks asyncio); cancelled when the node is over."""
        task = self._loop.create_task(coroutine)
        self._tasks[task] = None
        task.add_done_callback(self._task_ended)

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (failure := task.exception()) is not None:
            self.fail(failure)

    def run(self, start: Callable[[], Service]) -> None:
        """Start the node's service now."""

        def started() -> None:
            self._service = start()

        self.deliver(started)

    def watch_signals(self) -> None:
        """SIGTERM and SIGINT stop the node gracefully; a second one stops it at once.

        So does the end of its terminal, unless somebody saw to that it does not (`nohup`).
        """
        numbers = [signal.SIGTERM, signal.SIGINT]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            numbers.append(signal.SIGHUP)
        for number in numbers:
            self._loop.add_signal_handler(number, self.stop)

        def forget() -> None:
            for number in numbers:
                self._loop.remove_signal_handler(number)

        self.own(forget)

    def stop(self) -> None:
        """Ask the service to wind down, and end the node when it has or when its time is up."""
        if self._service is None or self._stopping:
            self._end()
            return
        self._stopping = True
        log.debug("node.stopping")
        if self._last_resort is not None:
            self._last_resort.arm()
        grace = self._loop.call_later(STOP_GRACE_NS / SECOND, self._stop_overdue)
        self.own(grace.cancel)
        self.deliver(self._service.stop, self._wound_down)

    def _wound_down(self) -> None:
        if self._last_resort is not None:
            self._last_resort.wound_down()
        self._end()

    def _stop_overdue(self) -> None:
        log.warning("node.stop_overdue")
        self._end()

    def fail(self, failure: BaseException) -> None:
        """End the node because of `failure`; the first one is the one that is reported."""
        if self.is_over:
            return
        self.failure = failure
        log.error("node.failed", reason=repr(failure), traceback=_traceback_of(failure))
        self._end()

    def loop_failed(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Last line: whatever slipped past `deliver` and reached the loop ends the node too."""
        failure = context.get("exception")
        self.fail(failure if failure is not None else RuntimeError(context.get("message")))

    def _end(self) -> None:
        if not self.is_over:
            self.is_over = True
            self._tell_over()

    def close(self) -> None:
        """Close what the node owned. Call it outside the loop's callbacks, once the node is over."""
        self.is_over = True
        for task in reversed(list(self._tasks)):
            task.cancel()
            self._loop.run_until_complete(asyncio.wait((task,)))
        while self._closers:
            try:
                self._closers.pop()()
            except Exception as failure:  # the rest must be closed all the same
                log.error("node.close_failed", reason=repr(failure))
                self.failure = self.failure or failure


def _traceback_of(failure: BaseException) -> str:
    return "".join(traceback.format_exception(failure))
