"""A client that deletes records from the front of partitions, as an operator or a stream processor does."""

from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.delete_records import (
    DeleteRecordsRequest,
    DeleteRecordsRequestPartition,
    DeleteRecordsRequestTopic,
    DeleteRecordsResponse,
    DeleteRecordsResponsePartition,
)
from penstock.sim.cluster.clients.client import ClusterNodes, PacedClient, is_retriable
from penstock.sim.cluster.journal import Place

TIMEOUT_MS = 600
# Between two deletions, in steps of a producer.
STEPS = 12
# How much of what is left goes at most, so that enough is there to be checked at the end.
SHARE_MAX = 0.3


class RecordDeleter(PacedClient):
    """Deletes part of what was acknowledged, now here, now there; what fails is not tried again."""

    def __init__(self, nodes: ClusterNodes, host: str, places: list[Place], pace_ms: float) -> None:
        super().__init__(nodes, host, STEPS * pace_ms)
        self._places = places

    def _look_around(self) -> None:
        self.after_ms(self.backoff_ms(), self.refresh_metadata, self._rest)

    def _act(self) -> None:
        place = self.luck.choice(self._places)
        leader = self.leader(place)
        if leader is None:
            self._look_around()
            return
        start = self.journal.log_starts.deletable(place)
        end = 1 + max(self.journal.log(*place).acknowledged.values(), default=-1)
        before = start + int((end - start) * SHARE_MAX * self.luck.random())
        if before <= start:
            self._rest()
            return
        self.journal.log_starts.asking(place, before)
        node = self.nodes.node(leader.node_id)

        def observe(response: DeleteRecordsResponse) -> None:
            row = _row(response)
            if row.error_code == ErrorCode.NONE:
                node.probe.deleted(place, row.low_watermark)

        def answered(reply: object) -> None:
            code = _row(reply).error_code if isinstance(reply, DeleteRecordsResponse) else None
            if code == ErrorCode.NONE:
                self._rest()
                return
            # A new leader's high watermark may not have reached what the old one acknowledged.
            if code is not None and code != ErrorCode.OFFSET_OUT_OF_RANGE and not is_retriable(code):
                self.journal.failures.append(f"unexpected error: {self.host} got {code} from DeleteRecords")
            self._look_around()

        partition = DeleteRecordsRequestPartition(partition_index=place[1], offset=before)
        topic = DeleteRecordsRequestTopic(name=place[0], partitions=(partition,))
        request = DeleteRecordsRequest(topics=(topic,), timeout_ms=TIMEOUT_MS)
        self.ask(leader.node_id, request, self.versions.of(DeleteRecordsRequest), answered, observe)


def _row(response: DeleteRecordsResponse) -> DeleteRecordsResponsePartition:
    ((row,),) = (topic.partitions for topic in response.topics)
    return row
