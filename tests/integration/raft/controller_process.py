"""One controller of a quorum as a process of its own: says when it leads, and every block it gives out.

python -m tests.integration.raft.controller_process DIRECTORY NODE PORT PORT PORT
"""

import sys
from uuid import UUID

from penstock.broker.cluster.peers import PeerManager
from penstock.broker.cluster.raft_host import RaftSetup
from penstock.core.metadata import ProducerIdBlock
from penstock.core.model import LeaderEpoch, NodeId
from penstock.core.raft import Configuration, Member
from penstock.runtime import Address, NodeIdentity, Runtime
from penstock.runtime.loop import run
from penstock.storage.disk import PosixDisk
from tests.simulation.raft.quorum_world import ControllerNode, Journal


class SpokenJournal(Journal):
    """Says everything at once: the process may not live to say it later."""

    def acknowledged(self, member: Member, block: ProducerIdBlock) -> None:
        super().acknowledged(member, block)
        say(f"block {block.start}")

    def led(self, member: Member, epoch: LeaderEpoch) -> None:
        super().led(member, epoch)
        say(f"leads {epoch}")


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def member_of(node: int) -> Member:
    return Member(NodeId(node), UUID(int=100 + node))


def main(directory: str, node: int, ports: list[int]) -> None:
    addresses = {NodeId(n): Address("127.0.0.1", port) for n, port in enumerate(ports, 1)}
    founders = Configuration(tuple(member_of(n) for n in range(1, len(ports) + 1)))
    me = member_of(node)

    def program(runtime: Runtime) -> ControllerNode:
        disk = PosixDisk(directory)
        hub = PeerManager(runtime, me.node_id, addresses[me.node_id])
        hub.keep("quorum", addresses)
        controller = ControllerNode(runtime, disk, RaftSetup(me, hub, founders), SpokenJournal())
        say("started")
        return controller

    failure = run(program, NodeIdentity(UUID(int=1), me.node_id, me.directory_id))
    if failure is not None:
        raise failure


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), [int(port) for port in sys.argv[3:]])
