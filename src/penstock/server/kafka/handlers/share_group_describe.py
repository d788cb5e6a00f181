"""ShareGroupDescribe: the epochs, members and assignments of share groups (KIP-932)."""

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from penstock.core.groups import (
    DescribedShareGroup,
    DescribedShareMember,
    DescribeShareGroup,
    PartitionSet,
    Reply,
    rows,
)
from penstock.core.metadata import SHARE_VERSION
from penstock.core.model import ApiError
from penstock.core.protocol import ErrorCode, Steps
from penstock.core.protocol.messages.share_group_describe import (
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    ShareGroupDescribeResponseAssignment,
    ShareGroupDescribeResponseGroup,
    ShareGroupDescribeResponseMember,
    ShareGroupDescribeResponseTopicPartitions,
)
from penstock.security import AclOperation
from penstock.server.kafka.errors import message_of
from penstock.server.kafka.request import Request
from penstock.server.kafka.response_rows import (
    NOT_ASKED,
    ResponseRows,
    authorized_operations,
    code_in,
    collected,
    group_resource,
    may,
    may_see_topics,
    unique,
)
from penstock.server.kafka.router import routes
from penstock.server.kafka.share_rights import NOT_ENABLED

Row = ShareGroupDescribeResponseGroup
# A group that was found, and what the caller may do to it; or the row that says why it was not.
Found: TypeAlias = tuple[DescribedShareGroup, int] | Row


@routes.handles(ShareGroupDescribeRequest)
def share_group_describe(request: ShareGroupDescribeRequest, call: Request) -> Iterator[None]:
    # Each once, however often it is named: a short request must not have an endless response.
    group_ids = yield from unique(request.group_ids)
    answered: ResponseRows[Found] = ResponseRows(len(group_ids), lambda found: call.run(_answer(call, found)))
    is_enabled = call.backend.controller.image.feature_level(SHARE_VERSION) > 0
    for index, group_id in enumerate(group_ids):
        if not may(call, AclOperation.DESCRIBE, group_id):
            answered.put(index, _failed(group_id, ErrorCode.GROUP_AUTHORIZATION_FAILED, None))
        elif is_enabled:
            _describe(request, call, answered, index, group_id)
        else:
            answered.put(index, _failed(group_id, ErrorCode.UNSUPPORTED_VERSION, NOT_ENABLED))
        yield
    answered.end()


def _describe(
    request: ShareGroupDescribeRequest,
    call: Request,
    answered: ResponseRows[Found],
    index: int,
    group_id: str,
) -> None:
    def done(reply: Reply) -> None:
        if isinstance(reply, DescribedShareGroup):
            asked = request.include_authorized_operations
            operations = authorized_operations(call, group_resource(group_id)) if asked else NOT_ASKED
            answered.put(index, (reply, operations))
        else:
            message = message_of(reply) if isinstance(reply, ApiError) else None
            answered.put(index, _failed(group_id, code_in(reply), message))

    call.backend.groups.submit(DescribeShareGroup(on_reply=done, group_id=group_id))


def _answer(call: Request, found: Sequence[Found]) -> Iterator[None]:
    groups: list[Row] = []
    for each in found:
        row = each if isinstance(each, Row) else (yield from _row(call, *each))
        groups.append(row)
        yield
    call.reply(ShareGroupDescribeResponse(throttle_time_ms=call.charge_time(), groups=tuple(groups)))


def _row(call: Request, group: DescribedShareGroup, operations: int) -> Steps[Row]:
    is_visible = yield from may_see_topics(
        call, ((member.topics, (member.assignment,)) for member in group.members)
    )
    if not is_visible:
        message = "the group has topics that the caller may not see"
        return _failed(group.group_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED, message)
    members = yield from collected(_member(call, member) for member in group.members)
    return Row(
        error_code=ErrorCode.NONE,
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=group.assignor,
        members=members,
        authorized_operations=operations,
    )


def _member(call: Request, member: DescribedShareMember) -> ShareGroupDescribeResponseMember:
    return ShareGroupDescribeResponseMember(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=member.topics,
        assignment=_assignment(call, member.assignment),
    )


def _assignment(call: Request, partitions: PartitionSet) -> ShareGroupDescribeResponseAssignment:
    image = call.backend.controller.image
    named = [(image.topic_name(topic_id), topic_id, indexes) for topic_id, indexes in rows(partitions)]
    return ShareGroupDescribeResponseAssignment(
        topic_partitions=tuple(
            [
                ShareGroupDescribeResponseTopicPartitions(
                    topic_id=topic_id, topic_name=name, partitions=indexes
                )
                for name, topic_id, indexes in named
                # A topic that was deleted is given up with the members' next heartbeats.
                if name is not None
            ]
        )
    )


def _failed(group_id: str, code: ErrorCode, message: str | None) -> Row:
    return Row(
        error_code=code,
        error_message=message,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=(),
    )
