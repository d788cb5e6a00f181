"""Topics that the cluster keeps its own state in get more replicas as brokers join."""

from penstock.core.metadata import Reply, StartedReassignments, WidenInternalTopics
from penstock.observability import log as events
from penstock.services.cluster.duties.rounds import Rounds

LOOK_MS = 2_000


class InternalTopics(Rounds):
    """Brings internal topics to three replicas, unless somebody has set another number."""

    def pause_ms(self) -> int:
        return LOOK_MS

    def look(self) -> None:
        self._controller.submit(WidenInternalTopics(), _told)


def _told(reply: Reply) -> None:
    if isinstance(reply, StartedReassignments) and reply.partitions:
        events.info("cluster.internal_topics_grow", partitions=reply.partitions)
