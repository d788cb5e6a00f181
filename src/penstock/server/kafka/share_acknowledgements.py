"""What a share consumer did with records, as commands to their queue (ShareFetch, ShareAcknowledge).

    0 gap       there is no such record, so there is nothing to do
    1 accept    AcknowledgeRecords
    2 release   ReleaseRecords, to be delivered again at once
    3 reject    RejectRecords: to the dead-letter topic
    4 renew     RenewLeases

The member's id says whose leases they are. Other than in Kafka, where a partition's acknowledgements count
all or none, those that can count do, and the error says that others did not.

What is settled and released for one request may be thousands of commands: they are submitted in steps.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol
from uuid import UUID

from penstock.core.model import ApiError, ErrorKind, Offset, PartitionIndex, TopicId
from penstock.core.protocol import ErrorCode, Steps
from penstock.core.queues import (
    AcknowledgeRecords,
    ClaimResults,
    LeaseClaim,
    OnReply,
    QueueCommand,
    QueueId,
    QueueReply,
    RejectRecords,
    ReleaseConsumer,
    ReleaseRecords,
    RenewLeases,
)
from penstock.security import AclOperation
from penstock.server.kafka.errors import code_of
from penstock.server.kafka.request import Request
from penstock.server.kafka.response_rows import KEYS_PER_STEP, topic_resource
from penstock.server.kafka.share_sessions import ShareSession

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
RENEW_SINCE = 2
# Of one request: more than a queue has in flight, and what takes a few milliseconds to look at.
OFFSETS_MAX = 20_000
CLAIMS_PER_COMMAND = 2_000
SharePartition = tuple[UUID, int]


class AcknowledgementBatch(Protocol):
    """One type for a range of offsets, or one for each."""

    @property
    def first_offset(self) -> int: ...
    @property
    def last_offset(self) -> int: ...
    @property
    def acknowledge_types(self) -> Sequence[int]: ...


Batches = Sequence[AcknowledgementBatch]


class AcknowledgedPartition(Protocol):
    """A partition, and what was done with its records."""

    @property
    def partition_index(self) -> int: ...
    @property
    def acknowledgement_batches(self) -> Batches: ...


class AcknowledgedTopic(Protocol):
    """A topic that a request names."""

    @property
    def topic_id(self) -> UUID: ...
    @property
    def partitions(self) -> Sequence[AcknowledgedPartition]: ...


def queue_of(call: Request, group_id: str, topic_id: UUID, index: int) -> QueueId | ErrorCode:
    """The group's queue on a partition that the caller may read."""
    topic = call.backend.controller.image.topic_by_id(TopicId(topic_id))
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if not call.authorize(AclOperation.READ, topic_resource(topic.name)):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if topic.partition(PartitionIndex(index)) is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return QueueId(group_id, topic.id, PartitionIndex(index))


def batches_of(topics: Iterable[AcknowledgedTopic]) -> Steps[dict[SharePartition, Batches]]:
    """What a request says of each partition that it names, if only that there is nothing to say."""
    found: dict[SharePartition, Batches] = {}
    count = 0
    for topic in topics:
        for each in topic.partitions:
            found[topic.topic_id, each.partition_index] = each.acknowledgement_batches
            count += 1
            if count % KEYS_PER_STEP == 0:
                yield
    return found


def settle_all(
    call: Request,
    member: tuple[str, str],
    batches: Mapping[SharePartition, Batches],
    done: Callable[[dict[SharePartition, ErrorCode]], None],
) -> Iterator[None]:
    """Settle what the member says of these partitions; `done` gets a code for each, perhaps at once."""
    group_id, member_id = member
    codes: dict[SharePartition, ErrorCode] = {}
    # One for this call, so that nothing is returned before everything was asked.
    left = 1

    def settled(partition: SharePartition | None, code: ErrorCode) -> None:
        nonlocal left
        left -= 1
        if partition is not None and codes.get(partition, ErrorCode.NONE) is ErrorCode.NONE:
            codes[partition] = code
        if not left:
            done(codes)

    offsets_max = OFFSETS_MAX
    for partition, its in batches.items():
        queue = queue_of(call, group_id, *partition)
        if isinstance(queue, ErrorCode):
            codes[partition] = queue
            yield
            continue
        count = yield from _offsets_in(its, can_renew=call.version >= RENEW_SINCE)
        if count is None or count > offsets_max:
            codes[partition] = ErrorCode.INVALID_REQUEST
            continue
        offsets_max -= count
        codes[partition] = ErrorCode.NONE
        for type_, claims in _claims_by_type(its):
            left += 1
            call.backend.queues.submit(
                _command(type_, _claimed(partition, settled), queue, claims, member_id)
            )
            yield
    settled(None, ErrorCode.NONE)


def release_all(
    call: Request, member: tuple[str, str], session: ShareSession, done: Callable[[], None]
) -> Iterator[None]:
    """Release what the member has leased in a session."""
    group_id, member_id = member
    left = 1

    def released(_reply: object) -> None:
        nonlocal left
        left -= 1
        if not left:
            done()

    tokens = tuple(session.tokens)
    for partition in session.partitions if tokens else ():
        queue = queue_of(call, group_id, *partition)
        if not isinstance(queue, ErrorCode):
            left += 1
            # A callback of its own: coordinators distinguish commands that wait by it.
            on_reply: OnReply = lambda reply: released(reply)  # noqa: E731, PLW0108
            release = ReleaseConsumer(on_reply=on_reply, queue=queue, consumer=member_id, tokens=tokens)
            call.backend.queues.submit(release)
        yield
    released(None)


def _claimed(
    partition: SharePartition, settled: Callable[[SharePartition | None, ErrorCode], None]
) -> Callable[[QueueReply], None]:
    def replied(reply: QueueReply) -> None:
        if isinstance(reply, ClaimResults):
            failed = next((kind for kind in reply.errors if kind is not None), None)
            settled(partition, ErrorCode.NONE if failed is None else code_of(ApiError(failed)))
        else:
            assert isinstance(reply, ApiError), reply
            # A queue that does not exist has leased nothing.
            is_gone = reply.kind is ErrorKind.UNKNOWN_GROUP
            settled(partition, ErrorCode.INVALID_RECORD_STATE if is_gone else code_of(reply))

    return replied


def _offsets_in(batches: Batches, *, can_renew: bool) -> Steps[int | None]:
    """How many offsets these are about; None: they are not in order, or no acknowledgements."""
    highest, count = -1, 0
    for number, batch in enumerate(batches):
        first, last, given = batch.first_offset, batch.last_offset, batch.acknowledge_types
        if first <= highest or last < first or len(given) not in (1, last - first + 1):
            return None
        if min(given) < GAP or max(given) > (RENEW if can_renew else REJECT):
            return None
        highest = last
        count += last - first + 1
        if number % KEYS_PER_STEP == 0:
            yield
    return count


def _claims_by_type(batches: Batches) -> Iterator[tuple[int, tuple[LeaseClaim, ...]]]:
    """The acknowledgements, as many at a time as a command has."""
    types: dict[int, list[LeaseClaim]] = {}
    for batch in batches:
        first, given = batch.first_offset, batch.acknowledge_types
        for place in range(batch.last_offset - first + 1):
            type_ = given[0] if len(given) == 1 else given[place]
            if type_ == GAP:
                continue
            claims = types.setdefault(type_, [])
            claims.append(LeaseClaim(Offset(first + place)))
            if len(claims) == CLAIMS_PER_COMMAND:
                yield type_, tuple(types.pop(type_))
    for type_, claims in types.items():
        yield type_, tuple(claims)


def _command(
    type_: int, on_reply: OnReply, queue: QueueId, claims: tuple[LeaseClaim, ...], member_id: str
) -> QueueCommand:
    match type_:
        case 1:
            return AcknowledgeRecords(on_reply=on_reply, queue=queue, claims=claims, consumer=member_id)
        case 2:
            return ReleaseRecords(
                on_reply=on_reply, queue=queue, claims=claims, consumer=member_id, delay_ms=0
            )
        case 3:
            return RejectRecords(on_reply=on_reply, queue=queue, claims=claims, consumer=member_id)
        case _:
            return RenewLeases(on_reply=on_reply, queue=queue, claims=claims, consumer=member_id)
