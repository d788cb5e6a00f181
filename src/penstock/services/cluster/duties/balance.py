"""Leaderships return to preferred replicas."""

from collections.abc import Mapping

from penstock.core.metadata import BalancedLeaders, BalanceLeaders, Reply, broker_setting
from penstock.observability import log as events
from penstock.runtime import Runtime
from penstock.services.cluster.controller import Controller
from penstock.services.cluster.duties.rounds import Rounds


class Balance(Rounds):
    """Asks for balance as often as `leader.imbalance.check.interval.seconds` says."""

    def __init__(self, runtime: Runtime, controller: Controller, static: Mapping[str, str]) -> None:
        super().__init__(runtime, controller)
        self._static = static

    def pause_ms(self) -> int:
        key = "leader.imbalance.check.interval.seconds"
        seconds = broker_setting(self._controller.image, key, static=self._static)
        assert isinstance(seconds, int)
        return seconds * 1_000

    def look(self) -> None:
        self._controller.submit(BalanceLeaders(), _told)


def _told(reply: Reply) -> None:
    if isinstance(reply, BalancedLeaders) and reply.moved:
        events.info("cluster.leaders_balanced", moved=reply.moved, left=reply.left)
