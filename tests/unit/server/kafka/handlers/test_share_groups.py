"""Share groups over the Kafka port: members, and what they consume."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from penstock.broker.queues.peers import QueuePeers
from penstock.core.model import SECOND
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
)
from penstock.core.protocol.messages.create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestTopic,
    CreateTopicsResponse,
)
from penstock.core.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from penstock.core.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsResponse,
)
from penstock.core.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsResponse,
)
from penstock.core.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from penstock.core.protocol.messages.produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
)
from penstock.core.protocol.messages.share_acknowledge import (
    ShareAcknowledgeRequest,
    ShareAcknowledgeRequestAcknowledgementBatch,
    ShareAcknowledgeRequestPartition,
    ShareAcknowledgeRequestTopic,
    ShareAcknowledgeResponse,
)
from penstock.core.protocol.messages.share_fetch import (
    ShareFetchRequest,
    ShareFetchRequestAcknowledgementBatch,
    ShareFetchRequestForgottenTopic,
    ShareFetchRequestPartition,
    ShareFetchRequestTopic,
    ShareFetchResponse,
)
from penstock.core.protocol.messages.share_group_describe import (
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from penstock.core.protocol.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from penstock.core.protocol.schema import ZERO_UUID
from penstock.core.queues import FindLeases, ReleaseConsumer
from penstock.core.records import Record, read_records, write_batch
from penstock.security import AclOperation
from penstock.server.kafka.share_acknowledgements import OFFSETS_MAX

ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
GROUP, TOPIC, MEMBER = "workers", "jobs", "m-1"


@pytest.fixture
def shared(stage: Any) -> Any:
    """A stage with a topic of two partitions, and a coordinator for groups."""
    topic = CreateTopicsRequestTopic(
        name=TOPIC, num_partitions=2, replication_factor=1, assignments=(), configs=()
    )
    created = stage.ask(CreateTopicsRequest(topics=(topic,)), CreateTopicsResponse, 7)
    assert created.topics[0].error_code == ErrorCode.NONE, created
    stage.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=(GROUP,)), FindCoordinatorResponse, 4)
    stage.run()
    return stage


def beat(stage: Any, epoch: int = 0, **fields: Any) -> ShareGroupHeartbeatResponse:
    given: dict[str, Any] = {"group_id": GROUP, "member_id": MEMBER, "member_epoch": epoch}
    if epoch == 0:
        given["subscribed_topic_names"] = (TOPIC,)
    reply = stage.ask(ShareGroupHeartbeatRequest(**given | fields), ShareGroupHeartbeatResponse, 1)
    assert isinstance(reply, ShareGroupHeartbeatResponse)
    return reply


def test_a_member_joins_is_described_and_leaves(shared: Any) -> None:
    joined = beat(shared)
    assert (joined.error_code, joined.member_epoch, joined.heartbeat_interval_ms) == (0, 1, 500)
    assert joined.assignment is not None
    assert [each.partitions for each in joined.assignment.topic_partitions] == [(0, 1)]

    request = ShareGroupDescribeRequest(group_ids=(GROUP, "none"), include_authorized_operations=False)
    described = shared.ask(request, ShareGroupDescribeResponse, 1)
    assert [each.error_code for each in described.groups] == [ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND]
    group = described.groups[0]
    assert (group.group_state, group.assignor_name, group.members[0].member_id) == (
        "Stable",
        "simple",
        MEMBER,
    )
    assert [each.topic_name for each in group.members[0].assignment.topic_partitions] == [TOPIC]

    assert beat(shared, -1).member_epoch == -1
    assert beat(shared, 1).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_requests_that_cannot_be_are_refused(shared: Any) -> None:
    assert beat(shared, member_id="").error_code == ErrorCode.INVALID_REQUEST
    assert beat(shared, rack_id="").error_code == ErrorCode.INVALID_REQUEST
    assert beat(shared, member_id="m" * 10_000).error_code == ErrorCode.INVALID_REQUEST
    assert beat(shared, session_timeout_ms=1).error_code == ErrorCode.INVALID_SESSION_TIMEOUT


def test_a_member_says_how_long_its_session_is(shared: Any) -> None:
    assert beat(shared, session_timeout_ms=6_000).error_code == ErrorCode.NONE

    shared.run(7 * SECOND)

    assert beat(shared, 1).error_code == ErrorCode.UNKNOWN_MEMBER_ID


class Member:
    """A share consumer on a connection of its own."""

    def __init__(self, stage: Any, name: str = MEMBER) -> None:
        self.client = stage.client()
        self.stage = stage
        self.name = name
        self.epoch = 0
        self.topic_id = stage.backend.controller.image.topic(TOPIC).id

    def request(self, *batches: tuple[int, int, int], **fields: Any) -> ShareFetchRequest:
        acknowledged = tuple(
            ShareFetchRequestAcknowledgementBatch(
                first_offset=first, last_offset=last, acknowledge_types=(type_,)
            )
            for first, last, type_ in batches
        )
        part = ShareFetchRequestPartition(partition_index=0, acknowledgement_batches=acknowledged)
        given: dict[str, Any] = {
            "group_id": GROUP,
            "member_id": self.name,
            "share_session_epoch": self.epoch,
            "max_wait_ms": 500,
            "min_bytes": 1,
            "max_records": 10,
            "batch_size": 10,
            "topics": (ShareFetchRequestTopic(topic_id=self.topic_id, partitions=(part,)),),
            "forgotten_topics_data": (),
        }
        return ShareFetchRequest(**given | fields)

    def fetch(self, *batches: tuple[int, int, int], **fields: Any) -> ShareFetchResponse:
        reply = self.client.ask(self.request(*batches, **fields), ShareFetchResponse, 2)
        assert isinstance(reply, ShareFetchResponse)
        if not reply.error_code:
            self.epoch += 1
        return reply

    def got(self, *batches: tuple[int, int, int], **fields: Any) -> list[tuple[int, int]]:
        """The offsets that a fetch leases, and the how-manieth delivery each is."""
        reply = self.fetch(*batches, **fields)
        assert reply.error_code == 0, reply
        acquired: list[tuple[int, int]] = []
        sent: list[int] = []
        for topic in reply.responses:
            for part in topic.partitions:
                assert (part.error_code, part.acknowledge_error_code) == (0, 0)
                for run in part.acquired_records:
                    offsets = range(run.first_offset, run.last_offset + 1)
                    acquired += [(offset, run.delivery_count) for offset in offsets]
                sent += [record.offset for record in _records(part.records)]
        assert sent == [offset for offset, _ in acquired]
        return acquired

    def acknowledge(self, first: int, last: int, *types: int, epoch: int | None = None) -> tuple[int, int]:
        batch = ShareAcknowledgeRequestAcknowledgementBatch(
            first_offset=first, last_offset=last, acknowledge_types=types
        )
        part = ShareAcknowledgeRequestPartition(partition_index=0, acknowledgement_batches=(batch,))
        request = ShareAcknowledgeRequest(
            group_id=GROUP,
            member_id=self.name,
            share_session_epoch=self.epoch if epoch is None else epoch,
            topics=(ShareAcknowledgeRequestTopic(topic_id=self.topic_id, partitions=(part,)),),
        )
        reply = self.client.ask(request, ShareAcknowledgeResponse, 2)
        if reply.error_code:
            return reply.error_code, 0
        self.epoch += 1
        return 0, reply.responses[0].partitions[0].error_code


def _records(sent: Any) -> list[Record]:
    found: list[Record] = []
    batches = bytes(sent or b"")
    at = 0
    while at < len(batches):
        size = 12 + int.from_bytes(batches[at + 8 : at + 12], "big")
        found += read_records(batches[at : at + size])
        at += size
    return found


def produce(stage: Any, count: int) -> None:
    batch = bytes(write_batch([Record(0, 1_000, None, b"job") for _ in range(count)]))
    part = ProduceRequestPartition(index=0, records=batch)
    topic = ProduceRequestTopic(name=TOPIC, partition_data=(part,))
    request = ProduceRequest(transactional_id=None, acks=-1, timeout_ms=5_000, topic_data=(topic,))
    reply = stage.ask(request, ProduceResponse, 9)
    assert reply.responses[0].partition_responses[0].error_code == 0, reply


def test_two_members_share_a_partition_and_no_record_is_with_both(shared: Any) -> None:
    produce(shared, 4)
    first, second = Member(shared, "a"), Member(shared, "b")

    assert first.got(max_records=2) == [(0, 1), (1, 1)]
    assert second.got(max_records=2) == [(2, 1), (3, 1)]

    assert first.acknowledge(0, 1, ACCEPT) == (0, 0)
    assert first.acknowledge(2, 2, ACCEPT) == (0, ErrorCode.INVALID_RECORD_STATE)
    assert second.acknowledge(2, 3, ACCEPT) == (0, 0)
    assert first.got() == []


@pytest.mark.parametrize(
    ("name", "code"),
    [(GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED), (TOPIC, ErrorCode.TOPIC_AUTHORIZATION_FAILED)],
)
def test_a_member_that_waits_gets_nothing_once_a_right_is_taken_back(
    shared: Any, name: str, code: int
) -> None:
    member = Member(shared)
    member.client.send(member.request(max_wait_ms=60_000), 2)
    shared.run()
    assert not member.client.has_answer

    shared.authorizer.denied.add((AclOperation.READ, name))
    produce(shared, 1)

    reply = member.client.receive(ShareFetchResponse, 2)
    parts = [part for topic in reply.responses for part in topic.partitions]
    assert {reply.error_code, *(part.error_code for part in parts)} - {0} == {code}
    assert b"".join(bytes(part.records or b"") for part in parts) == b""


def test_topics_that_may_not_be_seen_have_no_id(shared: Any) -> None:
    beat(shared)
    beat(shared, -1)
    shared.authorizer.denied |= {(right, TOPIC) for right in (AclOperation.READ, AclOperation.DESCRIBE)}
    asked = DescribeShareGroupOffsetsRequestTopic(topic_name=TOPIC, partitions=(0,))
    start = AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=0)
    change = AlterShareGroupOffsetsRequestTopic(topic_name=TOPIC, partitions=(start,))

    described = shared.ask(
        DescribeShareGroupOffsetsRequest(
            groups=(DescribeShareGroupOffsetsRequestGroup(group_id=GROUP, topics=(asked,)),)
        ),
        DescribeShareGroupOffsetsResponse,
        1,
    )
    altered = shared.ask(
        AlterShareGroupOffsetsRequest(group_id=GROUP, topics=(change,)), AlterShareGroupOffsetsResponse, 0
    )

    found = [described.groups[0].topics[0], altered.responses[0]]
    assert [row.partitions[0].error_code for row in found] == [ErrorCode.TOPIC_AUTHORIZATION_FAILED] * 2
    assert [row.topic_id for row in found] == [ZERO_UUID] * 2


def test_a_group_with_topics_that_may_not_be_seen_is_not_described(shared: Any) -> None:
    beat(shared)
    shared.authorizer.denied.add((AclOperation.DESCRIBE, TOPIC))

    asked = ShareGroupDescribeRequest(group_ids=(GROUP,), include_authorized_operations=False)
    reply = shared.ask(asked, ShareGroupDescribeResponse, 1)

    assert reply.groups[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert TOPIC not in repr(reply)


def test_a_member_of_a_group_for_whose_queues_there_is_no_room_is_told(shared: Any) -> None:
    service = shared.backstage._queues
    assert service is not None
    service._queue_bytes_max = 0
    beat(shared)

    reply = Member(shared).fetch()

    assert reply.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert "queues" in (reply.error_message or "")


def test_what_is_released_comes_again_and_what_is_rejected_does_not(shared: Any) -> None:
    produce(shared, 3)
    member = Member(shared)
    member.got()

    assert member.acknowledge(0, 2, ACCEPT, RELEASE, REJECT) == (0, 0)

    assert member.acknowledge(2, 2, ACCEPT) == (0, ErrorCode.INVALID_RECORD_STATE)
    assert member.got() == [(1, 2)]
    assert member.got((1, 1, ACCEPT)) == []


def test_a_lease_that_is_renewed_lasts_longer_than_one_that_is_not(shared: Any) -> None:
    produce(shared, 2)
    member, other = Member(shared, "a"), Member(shared, "b")
    member.got()

    shared.run(20 * SECOND)
    assert member.acknowledge(1, 1, RENEW) == (0, 0)
    shared.run(15 * SECOND)

    assert other.got() == [(0, 2)]


def test_a_session_ends_with_its_last_request_and_what_it_had_is_for_others(shared: Any) -> None:
    produce(shared, 2)
    member, other = Member(shared, "a"), Member(shared, "b")
    member.got()

    assert member.acknowledge(0, 0, ACCEPT, epoch=-1) == (0, 0)

    assert member.fetch().error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert other.got() == [(1, 2)]


@pytest.mark.parametrize("by", ["fetch", "acknowledge"])
def test_the_last_request_of_an_older_session_leaves_what_the_member_has_got_since(
    shared: Any, by: str
) -> None:
    produce(shared, 2)
    before, after, other = Member(shared, "a"), Member(shared, "a"), Member(shared, "b")
    before.got(max_records=1)
    after.got(max_records=1)

    if by == "fetch":
        assert before.fetch(share_session_epoch=-1).error_code == 0
    else:
        assert before.acknowledge(0, 0, ACCEPT, epoch=-1) == (0, 0)

    assert other.got() == ([(0, 2)] if by == "fetch" else [])
    assert after.acknowledge(1, 1, ACCEPT) == (0, 0)


def test_a_member_that_leaves_the_group_leaves_its_records_to_others(shared: Any) -> None:
    produce(shared, 1)
    member, other = Member(shared), Member(shared, "b")
    beat(shared)
    assert member.got() == [(0, 1)]
    assert other.got() == []

    beat(shared, -1)

    assert other.got() == [(0, 2)]


@pytest.mark.parametrize(("late", "released"), [(FindLeases, []), (ReleaseConsumer, [(0, 2)])])
def test_a_member_that_is_back_keeps_what_it_has_got_since_however_late_its_release_comes(
    shared: Any, monkeypatch: pytest.MonkeyPatch, late: type, released: list[tuple[int, int]]
) -> None:
    produce(shared, 2)
    member, other = Member(shared), Member(shared, "b")
    beat(shared)
    assert member.got(max_records=1) == [(0, 1)]
    held: list[Callable[[], None]] = []
    submit = QueuePeers.submit

    def submit_late(peers: QueuePeers, command: Any, *rest: Any) -> None:
        act = partial(submit, peers, command, *rest)
        held.append(act) if isinstance(command, late) else act()

    monkeypatch.setattr(QueuePeers, "submit", submit_late)
    beat(shared, -1)
    beat(shared)
    assert member.got(max_records=1) == [(1, 1)]
    assert held

    for act in held:
        act()
    shared.run(SECOND)

    assert other.got() == released


def test_epochs_of_sessions_are_checked(shared: Any) -> None:
    produce(shared, 1)
    member = Member(shared)
    assert member.acknowledge(0, 0, ACCEPT, epoch=0)[0] == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert member.acknowledge(0, 0, ACCEPT, epoch=1)[0] == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert member.fetch((0, 0, ACCEPT)).error_code == ErrorCode.INVALID_REQUEST
    member.fetch()

    assert member.fetch(share_session_epoch=5).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert member.fetch(member_id="").error_code == ErrorCode.INVALID_REQUEST


def test_a_partition_that_is_forgotten_or_unknown_has_no_records(shared: Any) -> None:
    member = Member(shared)
    member.fetch()
    forgotten = ShareFetchRequestForgottenTopic(topic_id=member.topic_id, partitions=(0,))
    member.fetch(topics=(), forgotten_topics_data=(forgotten,))
    produce(shared, 1)

    assert member.got(topics=()) == []
    part = ShareFetchRequestPartition(partition_index=99, acknowledgement_batches=())
    topic = ShareFetchRequestTopic(topic_id=member.topic_id, partitions=(part,))
    reply = member.fetch(topics=(topic,))
    assert reply.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(
    ("first", "last", "types"),
    [(1, 0, (ACCEPT,)), (0, 2**62, (ACCEPT,)), (0, 2, (ACCEPT, ACCEPT)), (0, 0, (9,)), (0, 0, ())],
)
def test_acknowledgements_that_cannot_be_are_refused(
    shared: Any, first: int, last: int, types: tuple[int, ...]
) -> None:
    member = Member(shared)
    member.fetch()

    assert member.acknowledge(first, last, *types) == (0, ErrorCode.INVALID_REQUEST)


def offsets(stage: Any, *, are_named: bool = False) -> list[tuple[int, int]]:
    """The start offset and lag of each partition."""
    named = DescribeShareGroupOffsetsRequestTopic(topic_name=TOPIC, partitions=(0, 1))
    group = DescribeShareGroupOffsetsRequestGroup(group_id=GROUP, topics=(named,) if are_named else None)
    reply = stage.ask(DescribeShareGroupOffsetsRequest(groups=(group,)), DescribeShareGroupOffsetsResponse, 1)
    assert reply.groups[0].error_code == 0, reply
    return [(each.start_offset, each.lag) for topic in reply.groups[0].topics for each in topic.partitions]


def alter(stage: Any, offset: int, partition: int = 0) -> tuple[int, list[int]]:
    part = AlterShareGroupOffsetsRequestPartition(partition_index=partition, start_offset=offset)
    topic = AlterShareGroupOffsetsRequestTopic(topic_name=TOPIC, partitions=(part,))
    request = AlterShareGroupOffsetsRequest(group_id=GROUP, topics=(topic,))
    reply = stage.ask(request, AlterShareGroupOffsetsResponse, 0)
    return reply.error_code, [row.error_code for each in reply.responses for row in each.partitions]


def delete(stage: Any, topic: str) -> tuple[int, list[int]]:
    topics = (DeleteShareGroupOffsetsRequestTopic(topic_name=topic),)
    request = DeleteShareGroupOffsetsRequest(group_id=GROUP, topics=topics)
    reply = stage.ask(request, DeleteShareGroupOffsetsResponse, 0)
    return reply.error_code, [each.error_code for each in reply.responses]


def test_a_request_acknowledges_so_many_records_over_all_its_partitions(shared: Any) -> None:
    member = Member(shared)
    member.fetch()
    batch = ShareAcknowledgeRequestAcknowledgementBatch(
        first_offset=0, last_offset=OFFSETS_MAX * 3 // 4, acknowledge_types=(ACCEPT,)
    )
    parts = [
        ShareAcknowledgeRequestPartition(partition_index=index, acknowledgement_batches=(batch,))
        for index in (0, 1, 99)
    ]
    topic = ShareAcknowledgeRequestTopic(topic_id=member.topic_id, partitions=tuple(parts))
    request = ShareAcknowledgeRequest(
        group_id=GROUP, member_id=member.name, share_session_epoch=member.epoch, topics=(topic,)
    )

    reply = member.client.ask(request, ShareAcknowledgeResponse, 2)

    codes = {part.partition_index: part.error_code for part in reply.responses[0].partitions}
    assert codes == {
        0: ErrorCode.INVALID_RECORD_STATE,
        1: ErrorCode.INVALID_REQUEST,
        99: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


def test_where_a_group_stands_is_told_changed_and_forgotten(shared: Any) -> None:
    produce(shared, 5)
    assert alter(shared, 0)[0] == delete(shared, TOPIC)[0] == ErrorCode.GROUP_ID_NOT_FOUND
    member = Member(shared)
    beat(shared)
    member.got()
    member.acknowledge(0, 2, ACCEPT)

    assert offsets(shared) == offsets(shared, are_named=True) == [(3, 2), (-1, -1)]
    assert alter(shared, 1)[0] == delete(shared, TOPIC)[0] == ErrorCode.NON_EMPTY_GROUP

    beat(shared, -1)
    assert alter(shared, 1) == (0, [0])
    assert offsets(shared)[0] == (1, 4)
    assert alter(shared, -7) == (0, [ErrorCode.INVALID_REQUEST])
    assert alter(shared, 0, partition=9) == (0, [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])
    assert delete(shared, TOPIC) == (0, [0])
    assert delete(shared, "none") == (0, [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])
    assert offsets(shared) == [(-1, -1), (-1, -1)]


def test_a_group_that_was_deleted_begins_anew(shared: Any) -> None:
    produce(shared, 2)
    beat(shared)
    member = Member(shared)
    member.got()
    member.acknowledge(0, 1, ACCEPT, epoch=-1)
    beat(shared, -1)

    reply = shared.ask(DeleteGroupsRequest(groups_names=(GROUP,)), DeleteGroupsResponse, 2)
    assert reply.results[0].error_code == 0
    shared.run()

    assert Member(shared).got() == [(0, 1), (1, 1)]
