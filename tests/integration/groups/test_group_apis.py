"""Every group API in every version, over a socket; and errors as Kafka gives them."""

from typing import Any
from uuid import UUID

import pytest

from penstock.core.protocol import APIS, ErrorCode
from penstock.core.protocol.codec import Message
from penstock.core.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from penstock.core.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from penstock.core.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from penstock.core.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.core.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from penstock.core.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupRequestMember,
    LeaveGroupResponse,
)
from penstock.core.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from penstock.core.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from penstock.core.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from penstock.core.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from penstock.core.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestGroupTopic,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from penstock.core.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from tests.support.wire import Wire

SUBSCRIPTION = b"\x00\x00\x00\x00\x00\x01\x00\x06orders\xff\xff\xff\xff"
NOBODY = "nobody-knows-me"


def versions(request: type[Message]) -> list[int]:
    api_key = request.__schema__.api_key
    assert api_key is not None
    return list(APIS[api_key].versions)


class Client:
    """A consumer that speaks one version of everything, or the nearest there is."""

    def __init__(self, wire: Wire, group_id: str, version: int) -> None:
        self.wire = wire
        self.group_id = group_id
        self.version = version
        self.member_id = ""
        self.generation = -1

    def of(self, request: type[Message]) -> int:
        return min(self.version, versions(request)[-1])

    def locate(self) -> tuple[int, str, int]:
        version = self.of(FindCoordinatorRequest)
        wanted = {"coordinator_keys": (self.group_id,)} if version >= 4 else {"key": self.group_id}
        found = self.wire.ask(FindCoordinatorRequest(**wanted), FindCoordinatorResponse, version)
        row = found.coordinators[0] if version >= 4 else found
        return row.error_code, row.host, row.port

    def join(self) -> JoinGroupResponse:
        version = self.of(JoinGroupRequest)
        while True:
            request = JoinGroupRequest(
                group_id=self.group_id,
                session_timeout_ms=10_000,
                rebalance_timeout_ms=20_000 if version >= 1 else -1,
                member_id=self.member_id,
                protocol_type="consumer",
                protocols=(JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION),),
            )
            answer = self.wire.ask(request, JoinGroupResponse, version)
            self.member_id, self.generation = answer.member_id, answer.generation_id
            if answer.error_code != ErrorCode.MEMBER_ID_REQUIRED:
                return answer

    def sync(self) -> SyncGroupResponse:
        version = self.of(SyncGroupRequest)
        named = {"protocol_type": "consumer", "protocol_name": "range"} if version >= 5 else {}
        request = SyncGroupRequest(
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            assignments=(SyncGroupRequestAssignment(member_id=self.member_id, assignment=b"all"),),
            **named,
        )
        return self.wire.ask(request, SyncGroupResponse, version)

    def heartbeat(self) -> int:
        request = HeartbeatRequest(
            group_id=self.group_id, generation_id=self.generation, member_id=self.member_id
        )
        return self.wire.ask(request, HeartbeatResponse, self.of(HeartbeatRequest)).error_code

    def commit(self, topic: str, topic_id: UUID, offset: int) -> list[int]:
        version = self.of(OffsetCommitRequest)
        member: dict[str, Any] = {
            "generation_id_or_member_epoch": self.generation,
            "member_id": self.member_id,
        }
        request = OffsetCommitRequest(
            group_id=self.group_id,
            topics=(
                OffsetCommitRequestTopic(
                    topic_id=topic_id,
                    name=topic,
                    partitions=tuple(
                        OffsetCommitRequestPartition(
                            partition_index=index, committed_offset=offset, committed_metadata="note"
                        )
                        for index in range(2)
                    ),
                ),
            ),
            **(member if version >= 1 else {}),
        )
        answer = self.wire.ask(request, OffsetCommitResponse, version)
        return [part.error_code for part in answer.topics[0].partitions]

    def fetch(self, topic: str, topic_id: UUID) -> tuple[int, list[tuple[int, int, str | None, int]]]:
        """The group's error, and (partition, offset, metadata, error) of three partitions."""
        version = self.of(OffsetFetchRequest)
        indexes = (0, 1, 2)
        topics: Any
        if version >= 8:
            wanted = OffsetFetchRequestGroupTopic(topic_id=topic_id, name=topic, partition_indexes=indexes)
            group = OffsetFetchRequestGroup(group_id=self.group_id, topics=(wanted,))
            answer = self.wire.ask(OffsetFetchRequest(groups=(group,)), OffsetFetchResponse, version)
            code, topics = answer.groups[0].error_code, answer.groups[0].topics
        else:
            named = (OffsetFetchRequestTopic(name=topic, partition_indexes=indexes),)
            request = OffsetFetchRequest(group_id=self.group_id, topics=named)
            answer = self.wire.ask(request, OffsetFetchResponse, version)
            code, topics = answer.error_code, answer.topics
        parts = topics[0].partitions if topics else ()
        return code, [(p.partition_index, p.committed_offset, p.metadata, p.error_code) for p in parts]

    def leave(self) -> int:
        version = self.of(LeaveGroupRequest)
        who = (
            {"members": (LeaveGroupRequestMember(member_id=self.member_id),)}
            if version >= 3
            else {"member_id": self.member_id}
        )
        answer = self.wire.ask(LeaveGroupRequest(group_id=self.group_id, **who), LeaveGroupResponse, version)
        return answer.members[0].error_code if version >= 3 else answer.error_code


def topic_id_of(wire: Wire, topic: str) -> UUID:
    request = MetadataRequest(topics=(MetadataRequestTopic(name=topic),))
    return wire.ask(request, MetadataResponse, 12).topics[0].topic_id


@pytest.mark.parametrize("version", range(1, 11))
def test_a_member_joins_commits_and_leaves_in_every_version(wire: Wire, topic: str, version: int) -> None:
    client = Client(wire, f"life-{version}", version)
    topic_id = topic_id_of(wire, topic)

    assert client.locate() == (0, *wire.address)
    joined = client.join()
    assert (joined.error_code, joined.generation_id, joined.protocol_name) == (0, 1, "range")
    assert joined.leader == client.member_id
    assert [(m.member_id, bytes(m.metadata)) for m in joined.members] == [(client.member_id, SUBSCRIPTION)]
    synced = client.sync()
    assert (synced.error_code, synced.assignment) == (0, b"all")
    assert client.heartbeat() == 0
    assert client.commit(topic, topic_id, 10 + version) == [0, 0]
    offset = 10 + version
    assert client.fetch(topic, topic_id) == (
        0,
        [(0, offset, "note", 0), (1, offset, "note", 0), (2, -1, "", 0)],
    )
    assert client.leave() == 0
    assert client.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


def test_the_oldest_versions_join_but_commit_for_no_member(wire: Wire, topic: str) -> None:
    client = Client(wire, "oldest", 0)
    topic_id = topic_id_of(wire, topic)

    before = client.commit(topic, topic_id, 4)
    joined, synced = client.join(), client.sync()
    after = client.commit(topic, topic_id, 5)

    assert before == [0, 0]
    assert (joined.error_code, synced.error_code, client.heartbeat()) == (0, 0, 0)
    # Version 0 cannot say who commits, and a group with members takes nobody's word for it.
    assert after == [ErrorCode.UNKNOWN_MEMBER_ID] * 2
    assert client.fetch(topic, topic_id)[1][0] == (0, 4, "note", 0)
    assert client.leave() == 0


@pytest.mark.parametrize("version", versions(OffsetFetchRequest))
def test_an_unknown_group_has_committed_nothing_and_that_is_no_error(
    wire: Wire, topic: str, version: int
) -> None:
    client = Client(wire, NOBODY, version)

    code, rows = client.fetch(topic, topic_id_of(wire, topic))

    assert code == 0
    assert rows == [(index, -1, "", 0) for index in range(3)]


@pytest.mark.parametrize("version", range(2, 11))
def test_all_positions_of_a_group_can_be_asked_for(wire: Wire, topic: str, version: int) -> None:
    client = Client(wire, f"all-{version}", version)
    client.commit(topic, topic_id_of(wire, topic), 7)
    topics: Any

    if version >= 8:
        group = OffsetFetchRequestGroup(group_id=client.group_id, topics=None)
        answer = wire.ask(OffsetFetchRequest(groups=(group,)), OffsetFetchResponse, version)
        topics = answer.groups[0].topics
    else:
        request = OffsetFetchRequest(group_id=client.group_id, topics=None)
        topics = wire.ask(request, OffsetFetchResponse, version).topics

    found = [(part.partition_index, part.committed_offset) for row in topics for part in row.partitions]
    assert found == [(0, 7), (1, 7)]


@pytest.mark.parametrize("version", versions(OffsetCommitRequest)[1:])
def test_a_commit_in_the_name_of_a_generation_nobody_knows_is_refused(
    wire: Wire, topic: str, version: int
) -> None:
    client = Client(wire, NOBODY, version)
    client.generation, client.member_id = 3, "somebody"

    codes = client.commit(topic, topic_id_of(wire, topic), 1)

    expected = ErrorCode.GROUP_ID_NOT_FOUND if version >= 9 else ErrorCode.ILLEGAL_GENERATION
    assert codes == [expected] * 2


@pytest.mark.parametrize("version", versions(OffsetCommitRequest))
def test_a_commit_in_a_topic_that_does_not_exist_is_refused(wire: Wire, topic: str, version: int) -> None:
    del topic
    client = Client(wire, "elsewhere", version)

    codes = client.commit("no-such-topic", UUID(int=5), 1)

    expected = ErrorCode.UNKNOWN_TOPIC_ID if version >= 10 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == [expected] * 2


@pytest.mark.parametrize("version", versions(DescribeGroupsRequest))
def test_an_unknown_group_is_described_as_dead(wire: Wire, topic: str, version: int) -> None:
    del topic
    answer = wire.ask(DescribeGroupsRequest(groups=(NOBODY,)), DescribeGroupsResponse, version)

    row = answer.groups[0]
    assert (row.group_state, row.members) == ("Dead", ())
    assert row.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.NONE)


@pytest.mark.parametrize("version", versions(DescribeGroupsRequest))
def test_a_stable_group_is_described_with_its_members(wire: Wire, topic: str, version: int) -> None:
    del topic
    client = Client(wire, f"described-{version}", 9)
    client.join()
    client.sync()

    request = DescribeGroupsRequest(groups=(client.group_id,), include_authorized_operations=version >= 3)
    row = wire.ask(request, DescribeGroupsResponse, version).groups[0]

    assert (row.error_code, row.group_state, row.protocol_type, row.protocol_data) == (
        0,
        "Stable",
        "consumer",
        "range",
    )
    assert [(m.member_id, m.client_id, m.client_host, m.member_assignment) for m in row.members] == [
        (client.member_id, "test", "/127.0.0.1", b"all")
    ]
    assert (row.authorized_operations > 0) == (version >= 3)


@pytest.mark.parametrize("version", versions(ListGroupsRequest))
def test_groups_are_listed_and_filtered(wire: Wire, topic: str, version: int) -> None:
    stable = Client(wire, f"listed-stable-{version}", 9)
    stable.join()
    stable.sync()
    simple = Client(wire, f"listed-simple-{version}", 9)
    simple.commit(topic, topic_id_of(wire, topic), 1)

    everything = wire.ask(ListGroupsRequest(), ListGroupsResponse, version)
    only = {"states_filter": ("stable",)} if version >= 4 else {}
    kinds = {"types_filter": ("Classic",)} if version >= 5 else {}
    filtered = wire.ask(ListGroupsRequest(**only, **kinds), ListGroupsResponse, version)

    listed = {group.group_id: group for group in everything.groups}
    assert listed[stable.group_id].protocol_type == "consumer"
    assert simple.group_id in listed
    if version >= 4:
        assert listed[simple.group_id].group_state == "Empty"
        assert simple.group_id not in [group.group_id for group in filtered.groups]
    assert stable.group_id in [group.group_id for group in filtered.groups]


@pytest.mark.parametrize("version", versions(DeleteGroupsRequest))
def test_only_empty_groups_are_deleted(wire: Wire, topic: str, version: int) -> None:
    simple = Client(wire, f"doomed-{version}", 9)
    simple.commit(topic, topic_id_of(wire, topic), 1)
    busy = Client(wire, f"busy-{version}", 9)
    busy.join()

    request = DeleteGroupsRequest(groups_names=(simple.group_id, busy.group_id, NOBODY))
    results = wire.ask(request, DeleteGroupsResponse, version).results

    assert [row.error_code for row in results] == [
        ErrorCode.NONE,
        ErrorCode.NON_EMPTY_GROUP,
        ErrorCode.GROUP_ID_NOT_FOUND,
    ]
    assert simple.fetch(topic, topic_id_of(wire, topic))[1][0][1] == -1


def test_positions_are_deleted_unless_the_group_reads_the_topic(wire: Wire, topic: str) -> None:
    client = Client(wire, "forgetful", 9)
    client.join()
    client.sync()
    client.commit(topic, topic_id_of(wire, topic), 5)
    partitions = tuple(OffsetDeleteRequestPartition(partition_index=index) for index in range(2))
    request = OffsetDeleteRequest(
        group_id=client.group_id, topics=(OffsetDeleteRequestTopic(name=topic, partitions=partitions),)
    )

    reading = wire.ask(request, OffsetDeleteResponse, 0)
    client.leave()
    left = wire.ask(request, OffsetDeleteResponse, 0)

    codes = [part.error_code for part in reading.topics[0].partitions]
    assert codes == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC] * 2
    assert [part.error_code for part in left.topics[0].partitions] == [0, 0]
    assert client.fetch(topic, topic_id_of(wire, topic))[1][0][1] == -1


def test_positions_of_an_unknown_group_cannot_be_deleted(wire: Wire, topic: str) -> None:
    request = OffsetDeleteRequest(
        group_id=NOBODY, topics=(OffsetDeleteRequestTopic(name=topic, partitions=()),)
    )

    assert wire.ask(request, OffsetDeleteResponse, 0).error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_sync_that_does_not_name_its_protocol_is_refused(wire: Wire, topic: str) -> None:
    del topic
    request = SyncGroupRequest(group_id="g", generation_id=1, member_id="m", assignments=())

    answer = wire.ask(request, SyncGroupResponse, 5)

    assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize(
    ("key_type", "version", "key", "code"),
    [
        (1, 1, "transaction", ErrorCode.NONE),
        (1, 6, "transaction", ErrorCode.NONE),
        (2, 6, "group:AAAAAAAAAAAAAAAAAAAAAQ:0", ErrorCode.NONE),
        (2, 6, "not a share key", ErrorCode.INVALID_REQUEST),
        (2, 5, "group:AAAAAAAAAAAAAAAAAAAAAQ:0", ErrorCode.INVALID_REQUEST),
        (9, 6, "g", ErrorCode.INVALID_REQUEST),
    ],
)
def test_coordinators_of_other_kinds(
    wire: Wire, key_type: int, version: int, key: str, code: ErrorCode
) -> None:
    wanted = {"coordinator_keys": (key,)} if version >= 4 else {"key": key}

    found = wire.ask(FindCoordinatorRequest(key_type=key_type, **wanted), FindCoordinatorResponse, version)

    row = found.coordinators[0] if version >= 4 else found
    assert row.error_code == code
    assert (row.port == wire.address[1]) == (code is ErrorCode.NONE)
