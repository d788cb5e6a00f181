"""QueueDescribe: queues in numbers, also those that nobody consumes. An API of Penstock, not of Kafka."""

from collections.abc import Iterator

from penstock.broker.queues.queue_admin import QueuesDescribed
from penstock.core.model import TopicId
from penstock.core.protocol import ErrorCode, Steps
from penstock.core.protocol.messages.queue_describe import (
    QueueDescribeRequest,
    QueueDescribeResponse,
    QueueDescribeResponseQueue,
)
from penstock.core.queues import QueueDescription
from penstock.security import AclOperation
from penstock.server.kafka.queue_requests import QueueRefusal
from penstock.server.kafka.request import Request
from penstock.server.kafka.response_rows import error_fields, group_resource, may, topic_resource
from penstock.server.kafka.router import routes

NAMES_MAX = 10_000


@routes.handles(QueueDescribeRequest)
def queue_describe(request: QueueDescribeRequest, call: Request) -> Iterator[None]:
    image = call.backend.controller.image
    refused = yield from _refusal(request, call)
    topic_ids: list[TopicId] = []
    for name in request.topics if refused is None else ():
        topic = image.topic(name)
        if topic is None:
            refused = QueueRefusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
            break
        topic_ids.append(topic.id)
        yield
    if refused is None:
        call.backend.queue_admin.describe(
            request.groups, topic_ids, lambda described: call.run(_answer(call, described))
        )
        return
    call.reply(
        QueueDescribeResponse(
            throttle_time_ms=call.charge_time(), error_code=refused.code, error_message=refused.message
        )
    )


def _refusal(request: QueueDescribeRequest, call: Request) -> Steps[QueueRefusal | None]:
    if max(len(request.groups), len(request.topics)) > NAMES_MAX:
        return QueueRefusal(ErrorCode.INVALID_REQUEST, f"one request names {NAMES_MAX:,} groups at most")
    for group_id in request.groups:
        if not may(call, AclOperation.DESCRIBE, group_id):
            return QueueRefusal(ErrorCode.GROUP_AUTHORIZATION_FAILED, f"group {group_id}: not authorized")
        yield
    for name in request.topics:
        if not call.authorize(AclOperation.DESCRIBE, topic_resource(name)):
            # Whether it is there or not.
            return QueueRefusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"topic {name}: not authorized")
        yield
    return None


def _answer(call: Request, described: QueuesDescribed) -> Iterator[None]:
    name_of = call.backend.controller.image.topic_name
    rows = []
    for queue in described.queues:
        topic = name_of(queue.stored.queue.topic_id)
        # Queues of a deleted topic are about to be forgotten.
        if topic is not None and _may_see(call, queue.stored.queue.group_id, topic):
            rows.append(_row(topic, queue))
        yield
    rows.sort(key=lambda row: (row.group_id, row.topic, row.partition))
    code, message = error_fields(described.error)
    call.reply(
        QueueDescribeResponse(
            throttle_time_ms=call.charge_time(), error_code=code, error_message=message, queues=tuple(rows)
        )
    )


def _may_see(call: Request, group_id: str, topic: str) -> bool:
    operation = AclOperation.DESCRIBE
    return call.permits(operation, group_resource(group_id)) and call.permits(
        operation, topic_resource(topic)
    )


def _row(topic: str, described: QueueDescription) -> QueueDescribeResponseQueue:
    stored = described.stored
    settings = stored.settings
    return QueueDescribeResponseQueue(
        group_id=stored.queue.group_id,
        topic=topic,
        partition=stored.queue.partition,
        end=stored.end,
        finished_below=described.finished_below,
        ready=described.ready,
        blocked=described.blocked,
        delayed=described.delayed,
        leased=described.leased,
        moving=described.moving,
        is_paused=stored.is_paused,
        lease_ms=settings.lease_ms,
        deliveries_max=settings.deliveries_max,
        has_dead_letters=settings.has_dead_letters,
        backoff_ms=settings.backoff_ms,
        backoff_max_ms=settings.backoff_ms_max,
        is_key_ordered=settings.is_key_ordered,
    )
