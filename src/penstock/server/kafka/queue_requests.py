"""What the handlers of queues share: who may do what, and which queues a request names."""

from collections.abc import Iterable
from typing import NamedTuple

from penstock.core.metadata import Topic, is_internal
from penstock.core.model import ApiError, PartitionIndex
from penstock.core.protocol import ErrorCode
from penstock.core.queues import QueueId
from penstock.security import AclOperation
from penstock.server.kafka.errors import code_of, message_of
from penstock.server.kafka.request import Request
from penstock.server.kafka.response_rows import may, topic_resource

# Of one request: each is asked, or waited for.
QUEUES_MAX = 1_000


class QueueRefusal(NamedTuple):
    """Why a whole request is refused."""

    code: ErrorCode
    message: str

    @staticmethod
    def of(error: ApiError) -> "QueueRefusal":
        return QueueRefusal(code_of(error), message_of(error))


def group_refusal(call: Request, operation: AclOperation, group_id: str) -> QueueRefusal | None:
    if not group_id:
        return QueueRefusal(ErrorCode.INVALID_GROUP_ID, "a queue has the id of its group")
    if not may(call, operation, group_id):
        return QueueRefusal(ErrorCode.GROUP_AUTHORIZATION_FAILED, f"group {group_id}: not authorized")
    return None


def queues_of(
    call: Request, operation: AclOperation, group_id: str, topics: Iterable[tuple[str, tuple[int, ...]]]
) -> tuple[QueueId, ...] | QueueRefusal:
    """The queues of the group on these topics and partitions, all of a topic where none are named."""
    # Each topic once, however often it is named.
    named: dict[str, dict[int, None]] = {}
    whole = set[str]()
    for name, partitions in topics:
        named.setdefault(name, {}).update(dict.fromkeys(partitions))
        if not partitions:
            whole.add(name)
    queues: list[QueueId] = []
    for name, indexes in named.items():
        topic = _topic(call, operation, name)
        if isinstance(topic, QueueRefusal):
            return topic
        unknown = next((each for each in indexes if topic.partition(PartitionIndex(each)) is None), None)
        if unknown is not None:
            return QueueRefusal(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name} has no partition {unknown}"
            )
        count = len(topic.partitions) if name in whole else len(indexes)
        if len(queues) + count > QUEUES_MAX:
            return QueueRefusal(
                ErrorCode.INVALID_REQUEST, f"one request is about {QUEUES_MAX:,} partitions at most"
            )
        wanted = [each.index for each in topic.partitions] if name in whole else indexes
        queues += [QueueId(group_id, topic.id, PartitionIndex(index)) for index in wanted]
    if not queues:
        return QueueRefusal(ErrorCode.INVALID_REQUEST, "no topic is named")
    return tuple(queues)


def _topic(call: Request, operation: AclOperation, name: str) -> Topic | QueueRefusal:
    if not call.authorize(operation, topic_resource(name)):
        return QueueRefusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"topic {name}: not authorized")
    if is_internal(name):
        # The state of queues would feed a queue of its own for ever.
        return QueueRefusal(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} is internal, and no queue")
    topic = call.backend.controller.image.topic(name)
    if topic is None:
        return QueueRefusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
    return topic
