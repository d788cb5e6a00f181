"""Something to do again and again while this node leads."""

from penstock.core.model import MILLISECOND, Instant
from penstock.runtime import Runtime, Timer
from penstock.services.cluster.controller import Controller


class Rounds:
    """Calls `look` after each `pause_ms`, from the moment the node leads until it does not."""

    def __init__(self, runtime: Runtime, controller: Controller) -> None:
        self._runtime = runtime
        self._timer: Timer | None = None
        self._controller = controller
        controller.while_leading(self)

    def pause_ms(self) -> int:
        """How long to wait before the next look."""
        raise NotImplementedError

    def look(self) -> None:
        """See what is missing, and submit it."""
        raise NotImplementedError

    def began(self) -> None:
        self._wait()

    def ended(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wait(self) -> None:
        deadline = Instant(self._runtime.clock.now() + self.pause_ms() * MILLISECOND)
        self._timer = self._runtime.timers.at(deadline, self._due)

    def _due(self) -> None:
        if self._controller.is_leading:
            self.look()
            self._wait()
