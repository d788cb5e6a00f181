"""DescribeTopicPartitions: topic descriptions in pages (KIP-966).

topics in the order of names   a: 0 1 2   b: 0 1 2 3 4   c: 0
a page of five                [a: 0 1 2   b: 0 1]              next cursor (b, 2)
"""

from collections.abc import Iterator
from heapq import merge

from penstock.core.metadata import Topic, is_internal, problem_with_name
from penstock.core.protocol import ErrorCode, Steps
from penstock.core.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseCursor,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from penstock.core.protocol.schema import ZERO_UUID
from penstock.security import AclOperation
from penstock.server.kafka.node_addresses import ListenerView
from penstock.server.kafka.request import Request
from penstock.server.kafka.response_rows import (
    authorized_operations,
    collected,
    topic_resource,
    unique,
)
from penstock.server.kafka.router import routes

PARTITIONS_PER_PAGE_MAX = 2_000
NAMES_PER_RUN = 1_000


@routes.handles(DescribeTopicPartitionsRequest)
def describe_topic_partitions(request: DescribeTopicPartitionsRequest, call: Request) -> Iterator[None]:
    cursor = request.cursor
    if cursor is not None and cursor.partition_index < 0:
        refused = yield from collected(
            _failed(ErrorCode.INVALID_REQUEST, topic.name) for topic in request.topics
        )
        call.reply(DescribeTopicPartitionsResponse(throttle_time_ms=call.charge_time(), topics=refused))
        return
    page = _Page(call, max(1, min(request.response_partition_limit, PARTITIONS_PER_PAGE_MAX)))
    names = yield from _names(request, call)
    for name in names:
        yield
        if name is None:
            continue
        at_cursor = cursor is not None and cursor.topic_name == name
        start = cursor.partition_index if cursor is not None and at_cursor else 0
        has_room = yield from page.add(name, start)
        if not has_room:
            break
    call.reply(
        DescribeTopicPartitionsResponse(
            throttle_time_ms=call.charge_time(), topics=tuple(page.rows), next_cursor=page.next_cursor
        )
    )


def _names(request: DescribeTopicPartitionsRequest, call: Request) -> Steps[Iterator[str | None]]:
    """The requested topics from the cursor on, in the order of names; None for one that is left out."""
    first = "" if request.cursor is None else request.cursor.topic_name
    if not request.topics:
        return _every_name(call, first)
    named = yield from unique(topic.name for topic in request.topics)
    left = [name for name in named if name >= first]
    # Sorted in steps: as many short runs, which are merged as far as the page goes.
    runs: list[list[str]] = []
    for start in range(0, len(left), NAMES_PER_RUN):
        runs.append(sorted(left[start : start + NAMES_PER_RUN]))
        yield
    return merge(*runs)


def _every_name(call: Request, first: str) -> Iterator[str | None]:
    for name in call.backend.controller.image.topic_names():
        is_shown = name >= first and call.permits(AclOperation.DESCRIBE, topic_resource(name))
        yield name if is_shown else None


def _failed(code: ErrorCode, name: str) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=code, name=name, topic_id=ZERO_UUID, is_internal=is_internal(name), partitions=()
    )


class _Page:
    """The rows of one response, until it is full."""

    def __init__(self, call: Request, limit: int) -> None:
        self._call = call
        self._reach = ListenerView(call)
        self._room = limit
        self.rows: list[DescribeTopicPartitionsResponseTopic] = []
        self.next_cursor: DescribeTopicPartitionsResponseCursor | None = None

    def add(self, name: str, start: int) -> Steps[bool]:
        """Describe a topic from a partition on; False when the page is full."""
        if self._room == 0:
            return self._full(name, 0)
        resource = topic_resource(name)
        if not self._call.authorize(AclOperation.DESCRIBE, resource):
            self.rows.append(_failed(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name))
            return True
        topic = self._call.backend.controller.image.topic(name)
        if topic is None:
            invalid = problem_with_name(name) is not None
            code = ErrorCode.INVALID_TOPIC_EXCEPTION if invalid else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            self.rows.append(_failed(code, name))
            return True
        end = min(start + self._room, len(topic.partitions))
        partitions = yield from collected(self._partition(topic, index) for index in range(start, end))
        self.rows.append(self._row(topic, partitions))
        self._room -= max(end - start, 0)
        return True if end >= len(topic.partitions) else self._full(name, end)

    def _full(self, name: str, partition: int) -> bool:
        self.next_cursor = DescribeTopicPartitionsResponseCursor(topic_name=name, partition_index=partition)
        return False

    def _row(
        self, topic: Topic, partitions: tuple[DescribeTopicPartitionsResponsePartition, ...]
    ) -> DescribeTopicPartitionsResponseTopic:
        return DescribeTopicPartitionsResponseTopic(
            error_code=ErrorCode.NONE,
            name=topic.name,
            topic_id=topic.id,
            is_internal=topic.internal,
            partitions=partitions,
            topic_authorized_operations=authorized_operations(self._call, topic_resource(topic.name)),
        )

    def _partition(self, topic: Topic, index: int) -> DescribeTopicPartitionsResponsePartition:
        partition = topic.partitions[index]
        code, leader, offline = self._reach.standing(topic.name, partition)
        return DescribeTopicPartitionsResponsePartition(
            error_code=code,
            partition_index=index,
            leader_id=leader,
            leader_epoch=partition.leader_epoch,
            replica_nodes=partition.replicas,
            isr_nodes=partition.isr,
            eligible_leader_replicas=partition.elr,
            last_known_elr=partition.last_known_elr,
            offline_replicas=offline,
        )
