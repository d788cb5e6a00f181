"""A node with well-behaved clients on it, for attacks of a second or so."""

import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.attacks.attack import Attack, Attacker
from benchmarks.attacks.figures import Account
from benchmarks.attacks.nodes import AttackedNodes, NodeSetup
from benchmarks.attacks.run import WellBehavedClients, create_well_behaved_topic, target_of
from benchmarks.attacks.well_behaved import acked_records
from tests.support.clusters import until

PREPARE_SECONDS = 60


class AttackStage:
    """One node, the clients that must not suffer, and attacks one after the other."""

    def __init__(self, root: Path, setup: NodeSetup) -> None:
        self.nodes = AttackedNodes(root, 1, setup)
        self.nodes.start()
        create_well_behaved_topic(target_of(self.nodes, 1))
        self._clients = WellBehavedClients(self.nodes.bootstrap, root)
        self._clients.await_flow()

    def attack(self, attack: Attack, seconds: float) -> Counter[str]:
        """Attack, and wait until a record is acknowledged that was sent meanwhile; returns the counts."""
        if attack.prepare is not None:
            attack.prepare(Attacker(target_of(self.nodes, PREPARE_SECONDS)))
        began = self._sent()
        attacker = Attacker(target_of(self.nodes, seconds))
        attack.run(attacker)
        until(lambda: self._sent() > began, f"records are acknowledged beside {attack.name}")
        return attacker.counts

    def _sent(self) -> int:
        """The last record that was acknowledged."""
        return max(one.number for one in acked_records(self._clients.acked) if one.is_acked)

    def finish(self, while_stopped: Callable[[list[Path]], None] | None = None) -> Account:
        """Stop the clients, kill the node, start it again, and count what is in its log."""
        self._clients.stop_producer()
        self._clients.drain()
        self.nodes.end(signal.SIGKILL)
        if while_stopped is not None:
            while_stopped([node.data_dir for node in self.nodes.nodes])
        self.nodes.start()
        return self._clients.account()

    def close(self) -> None:
        self._clients.close()
        self.nodes.close()


@contextmanager
def attack_stage(root: Path, setup: NodeSetup) -> Iterator[AttackStage]:
    stage = AttackStage(root, setup)
    try:
        yield stage
    finally:
        stage.close()
