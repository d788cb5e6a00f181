"""Clients that move partitions to other brokers.

One moves them anywhere and calls some of the moves off; the other takes one leader after the other out.
"""

from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsRequestPartition,
    AlterPartitionReassignmentsRequestTopic,
    AlterPartitionReassignmentsResponse,
)
from penstock.sim.cluster.clients.client import ClusterNodes, PacedClient, is_retriable
from penstock.sim.cluster.journal import Place
from penstock.sim.cluster.options import SimulatedClusterOptions

TIMEOUT_MS = 1_000
# Between two moves, in steps of a producer.
STEPS = 15
CALLED_OFF = 0.2
ROTATION_STEPS = 6
# Nothing is under way; the brokers asked for are not there, or only those that would go have everything.
REFUSALS = (ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, ErrorCode.INVALID_REPLICA_ASSIGNMENT)


class PartitionMover(PacedClient):
    """Asks any node for one move after the other, whether or not the last one is over."""

    def __init__(
        self, nodes: ClusterNodes, host: str, places: list[Place], options: SimulatedClusterOptions
    ) -> None:
        super().__init__(nodes, host, STEPS * options.pace_ms)
        self._places = places
        self._brokers = list(range(1, options.nodes + 1))
        self._replicas = options.replicas

    def _act(self) -> None:
        place = self.luck.choice(self._places)
        is_called_off = self.luck.random() < CALLED_OFF
        self._move(place, None if is_called_off else self._draw())

    def _draw(self) -> tuple[int, ...]:
        return tuple(self.luck.sample(self._brokers, self._replicas))

    def _move(self, place: Place, wanted: tuple[int, ...] | None) -> None:
        name, index = place
        partition = AlterPartitionReassignmentsRequestPartition(partition_index=index, replicas=wanted)
        topic = AlterPartitionReassignmentsRequestTopic(name=name, partitions=(partition,))
        request = AlterPartitionReassignmentsRequest(timeout_ms=TIMEOUT_MS, topics=(topic,))

        def answered(reply: object) -> None:
            if isinstance(reply, AlterPartitionReassignmentsResponse):
                rows = [row for topic in reply.responses for row in topic.partitions]
                for code in (reply.error_code, *(row.error_code for row in rows)):
                    if code not in (ErrorCode.NONE, *REFUSALS) and not is_retriable(code):
                        self.journal.failures.append(
                            f"unexpected error: {self.host} got {code} from AlterPartitionReassignments"
                        )
            self._rest()

        version = self.versions.of(AlterPartitionReassignmentsRequest)
        self.ask(self.any_node(), request, version, answered)


class LeaderRotator(PartitionMover):
    """Takes the leader out of a partition, and then the next one, while the first may not have heard of it.

    Three replicas lose the first of them, which takes no replica that has to catch up; the two that are left
    lose the first of them to two others.

        1 2 3 ──► 2 3 ──► 3 4 5 ──► 4 5 ──► 5 1 2
    """

    def __init__(
        self, nodes: ClusterNodes, host: str, places: list[Place], options: SimulatedClusterOptions
    ) -> None:
        super().__init__(nodes, host, places, options)
        self._pace_ms = ROTATION_STEPS * options.pace_ms
        self._wanted: dict[Place, tuple[int, ...]] = {}

    def _act(self) -> None:
        place = self.luck.choice(self._places)
        last = self._wanted.get(place, ())
        if not last:
            wanted = self._draw()
        elif len(last) == self._replicas:
            wanted = last[1:]
        else:
            others = [broker for broker in self._brokers if broker not in last]
            wanted = (*last[1:], *self.luck.sample(others, self._replicas - len(last[1:])))
        self._wanted[place] = wanted
        self._move(place, wanted)
