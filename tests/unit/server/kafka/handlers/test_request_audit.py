"""What of requests is in the audit log."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.core.metadata.commands import AlterScramCredentials
from penstock.core.model import SECOND
from penstock.core.protocol import ErrorCode, Message
from penstock.core.protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from penstock.core.protocol.messages.create_api_key import CreateApiKeyRequest, CreateApiKeyResponse
from penstock.core.protocol.messages.create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestTopic,
    CreateTopicsResponse,
)
from penstock.core.protocol.messages.delete_api_key import DeleteApiKeyRequest, DeleteApiKeyResponse
from penstock.core.protocol.messages.delete_records import (
    DeleteRecordsRequest,
    DeleteRecordsRequestPartition,
    DeleteRecordsRequestTopic,
    DeleteRecordsResponse,
)
from penstock.core.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from penstock.core.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from penstock.core.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestConfig,
    IncrementalAlterConfigsRequestResource,
    IncrementalAlterConfigsResponse,
)
from penstock.core.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupRequestMember,
    LeaveGroupResponse,
)
from penstock.core.protocol.messages.metadata import MetadataRequest, MetadataResponse
from penstock.core.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from penstock.core.protocol.messages.produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
)
from penstock.core.protocol.messages.queue_alter import PAUSE, QueueAlterRequest, QueueAlterResponse
from penstock.core.protocol.messages.registry import APIS
from penstock.core.protocol.messages.rotate_master_key import RotateMasterKeyRequest, RotateMasterKeyResponse
from penstock.core.records import Record, write_batch
from penstock.core.sasl import credential_of
from penstock.security.audit.file import read_lines
from penstock.security.options import AuditOptions, SecurityOptions
from penstock.server.kafka.request_audit import _DETAILS, ALLOWED
from tests.support.kept_memory import kept_bytes, long_names
from tests.unit.server.kafka.handlers.test_access import SCRAM, acl, as_user, log_in

if TYPE_CHECKING:
    from tests.unit.server.kafka.handlers.conftest import Client, Stage


class Audited:
    """A secured node with an audit log."""

    def __init__(self, stage_with: type["Stage"], directory: Path, *, data: bool = False) -> None:
        self.directory = directory
        options = SecurityOptions(
            enabled=True,
            super_users=("admin",),
            mechanisms=("SCRAM-SHA-256", "PLAIN"),
            audit=AuditOptions(str(directory), topic=True, data=data),
        )
        self.stage = stage_with(security=options)
        for user in ("admin", "alice"):
            change = AlterScramCredentials(user, (credential_of(user, SCRAM, f"{user}-pw", b"salt"),))
            self.stage.submit(change)

    def lines(self, **wanted: str) -> list[dict[str, Any]]:
        self.stage.run()
        found = [json.loads(line) for line in read_lines(str(self.directory))]
        return [line for line in found if all(line[key] == value for key, value in wanted.items())]


def create(client: "Client", *names: str) -> list[int]:
    rows = tuple(
        CreateTopicsRequestTopic(
            name=name, num_partitions=1, replication_factor=1, assignments=(), configs=()
        )
        for name in names
    )
    answer = client.ask(CreateTopicsRequest(topics=rows, timeout_ms=1_000), CreateTopicsResponse, 5)
    return [row.error_code for row in answer.topics]


def produce(client: "Client", topic: str) -> int:
    batch = bytes(write_batch([Record(0, 0, None, b"secret record")]))
    part = ProduceRequestPartition(index=0, records=batch)
    request = ProduceRequest(
        acks=1, timeout_ms=1_000, topic_data=(ProduceRequestTopic(name=topic, partition_data=(part,)),)
    )
    answer = client.ask(request, ProduceResponse, 9)
    return answer.responses[0].partition_responses[0].error_code


def test_what_an_administrator_does_is_recorded_with_the_error_it_gets(
    stage_with: type["Stage"], tmp_path: Path
) -> None:
    node = Audited(stage_with, tmp_path)
    admin = as_user(node.stage, "admin")

    create(admin, "orders")
    create(admin, "orders", "bad name")

    rows = [(line["resource"], line["decision"], line["error"]) for line in node.lines(api="CreateTopics")]
    assert rows == [
        ("orders", "allowed", None),
        ("orders", "allowed", "TOPIC_ALREADY_EXISTS"),
        ("bad name", "allowed", "INVALID_TOPIC_EXCEPTION"),
    ]
    line = node.lines(api="CreateTopics")[0]
    assert (line["principal"], line["operation"], line["resource_type"]) == ("User:admin", "create", "topic")
    assert (line["client_id"], line["correlation"], line["host"]) == ("test", 7, "127.0.0.1")


def test_rules_are_recorded_in_words(stage_with: type["Stage"], tmp_path: Path) -> None:
    node = Audited(stage_with, tmp_path)

    as_user(node.stage, "admin").ask(CreateAclsRequest(creations=(acl("orders", 3),)), CreateAclsResponse, 3)

    (line,) = node.lines(api="CreateAcls")
    assert line["details"] == ["allow User:alice from * read on literal topic orders"]


def test_every_rule_of_a_request_is_recorded(stage_with: type["Stage"], tmp_path: Path) -> None:
    node = Audited(stage_with, tmp_path)
    rules = (*(acl(f"pad-{number}", 3) for number in range(60)), acl("payments", 3))

    as_user(node.stage, "admin").ask(CreateAclsRequest(creations=rules), CreateAclsResponse, 3)

    lines = node.lines(api="CreateAcls")
    assert [len(line["details"]) for line in lines] == [20, 20, 20, 1]
    assert lines[-1]["details"] == ["allow User:alice from * read on literal topic payments"]
    assert {line["correlation"] for line in lines} == {7}


def test_a_rule_with_long_names_is_recorded_to_its_end(stage_with: type["Stage"], tmp_path: Path) -> None:
    node = Audited(stage_with, tmp_path)
    rule = acl("payments", 3, f"User:{'x' * 300}")

    as_user(node.stage, "admin").ask(CreateAclsRequest(creations=(rule,)), CreateAclsResponse, 3)

    (line,) = node.lines(api="CreateAcls")
    assert "".join(line["details"]).endswith("xx from * read on literal topic payments")


def test_every_change_of_a_request_is_recorded(stage_with: type["Stage"], tmp_path: Path) -> None:
    node = Audited(stage_with, tmp_path)
    admin = as_user(node.stage, "admin")
    create(admin, "orders")
    names = (*(f"pad-{number}" for number in range(12_000)), "orders")

    answer = admin.ask(DeleteTopicsRequest(topic_names=names, timeout_ms=1_000), DeleteTopicsResponse, 5)

    assert len(answer.responses) == len(names)
    rows = [(line["resource"], line["error"]) for line in node.lines(api="DeleteTopics")]
    assert rows == [(name, "UNKNOWN_TOPIC_OR_PARTITION") for name in names[:-1]] + [("orders", None)]


def test_commits_of_many_offsets_by_nobody_in_the_group_are_counted(
    stage_with: type["Stage"], tmp_path: Path
) -> None:
    node = Audited(stage_with, tmp_path)
    admin = as_user(node.stage, "admin")
    rows = tuple(
        OffsetCommitRequestPartition(partition_index=index, committed_offset=0, committed_metadata="")
        for index in range(200)
    )
    topics = (OffsetCommitRequestTopic(name="orders", partitions=rows),)
    request = OffsetCommitRequest(
        group_id="workers", generation_id_or_member_epoch=-1, member_id="", topics=topics
    )

    for _ in range(5):
        admin.ask(request, OffsetCommitResponse, 8)
    node.stage.run(70 * SECOND)

    lines = node.lines(api="OffsetCommit", resource_type="topic")
    assert [line["count"] for line in lines] == [1, 4]


def test_each_topic_has_its_own_settings_in_its_lines(stage_with: type["Stage"], tmp_path: Path) -> None:
    node = Audited(stage_with, tmp_path)
    admin = as_user(node.stage, "admin")
    resources = {"orders": ("retention.ms",), "payments": tuple(f"pad-{number}" for number in range(30))}
    create(admin, *resources)
    rows = tuple(
        IncrementalAlterConfigsRequestResource(
            resource_type=2,
            resource_name=topic,
            configs=tuple(
                IncrementalAlterConfigsRequestConfig(name=name, config_operation=0, value="1")
                for name in names
            ),
        )
        for topic, names in resources.items()
    )

    admin.ask(
        IncrementalAlterConfigsRequest(resources=rows, validate_only=False),
        IncrementalAlterConfigsResponse,
        1,
    )

    lines = node.lines(api="IncrementalAlterConfigs")
    assert [(line["resource"], len(line["details"])) for line in lines] == [
        ("orders", 1),
        ("payments", 20),
        ("payments", 10),
    ]
    assert lines[-1]["details"][-1] == "topic payments: pad-29"


ROWS = (DeleteRecordsRequestPartition(partition_index=0, offset=-1),)


@pytest.mark.parametrize(
    ("message", "response", "details"),
    [
        (
            CreateApiKeyRequest(id="k1", user="alice", digest=b"d" * 32, scope=(3,)),
            CreateApiKeyResponse,
            ["k1 of alice", "for read alone"],
        ),
        (DeleteApiKeyRequest(id="k1"), DeleteApiKeyResponse, ["id k1"]),
        (
            RotateMasterKeyRequest(node_id=1, reseal=True),
            RotateMasterKeyResponse,
            ["node 1, with its old segments"],
        ),
        (
            DeleteRecordsRequest(
                topics=(DeleteRecordsRequestTopic(name="orders", partitions=ROWS),), timeout_ms=1_000
            ),
            DeleteRecordsResponse,
            ["orders/0: all"],
        ),
        (
            QueueAlterRequest(group_id="workers", topic="orders", partitions=(0,), action=PAUSE),
            QueueAlterResponse,
            ["pause orders of workers: 0"],
        ),
    ],
)
def test_what_an_administrator_asked_for_is_recorded_in_words(
    stage_with: type["Stage"],
    tmp_path: Path,
    message: Message,
    response: type[Message],
    details: list[str],
) -> None:
    node = Audited(stage_with, tmp_path)
    admin = as_user(node.stage, "admin")
    create(admin, "orders")

    admin.ask(message, response, 0)

    (api,) = [api.name for api in APIS.values() if api.request is type(message)]
    assert [line["details"] for line in node.lines(api=api)][:1] == [details]


@pytest.mark.parametrize(
    ("members", "details"),
    [
        ((LeaveGroupRequestMember(member_id="", group_instance_id="a"),), ["remove instance a"]),
        (
            (LeaveGroupRequestMember(member_id="m1", reason="member was removed by an admin: lost"),),
            ["remove m1"],
        ),
        (
            (LeaveGroupRequestMember(member_id="m1"), LeaveGroupRequestMember(member_id="m2")),
            ["remove m1", "remove m2"],
        ),
        ((LeaveGroupRequestMember(member_id="m1", reason="the consumer is being closed"),), None),
    ],
)
def test_the_removal_of_members_is_recorded_and_not_that_one_leaves(
    stage_with: type["Stage"],
    tmp_path: Path,
    members: tuple[LeaveGroupRequestMember, ...],
    details: list[str] | None,
) -> None:
    node = Audited(stage_with, tmp_path)

    request = LeaveGroupRequest(group_id="workers", members=members)
    as_user(node.stage, "admin").ask(request, LeaveGroupResponse, 5)

    lines = [(line["resource"], line["details"]) for line in node.lines(api="LeaveGroup")]
    assert lines == ([] if details is None else [("workers", details)])


def test_values_of_settings_are_not_recorded(stage_with: type["Stage"], tmp_path: Path) -> None:
    node = Audited(stage_with, tmp_path)
    admin = as_user(node.stage, "admin")
    create(admin, "orders")
    config = IncrementalAlterConfigsRequestConfig(name="retention.ms", config_operation=0, value="987654")
    row = IncrementalAlterConfigsRequestResource(resource_type=2, resource_name="orders", configs=(config,))

    admin.ask(
        IncrementalAlterConfigsRequest(resources=(row,), validate_only=False),
        IncrementalAlterConfigsResponse,
        1,
    )

    (line,) = node.lines(api="IncrementalAlterConfigs")
    assert line["details"] == ["topic orders: retention.ms"]
    assert b"987654" not in b"".join(read_lines(str(tmp_path)))


def test_a_refusal_is_recorded_and_repeats_are_counted(stage_with: type["Stage"], tmp_path: Path) -> None:
    node = Audited(stage_with, tmp_path)
    alice = as_user(node.stage, "alice")

    for _ in range(3):
        assert produce(alice, "orders") == ErrorCode.TOPIC_AUTHORIZATION_FAILED

    (line,) = node.lines(decision="refused")
    assert (line["principal"], line["api"], line["operation"]) == ("User:alice", "Produce", "write")
    assert (line["resource"], line["error"]) == ("orders", "TOPIC_AUTHORIZATION_FAILED")
    node.stage.run(70 * SECOND)
    assert [line["count"] for line in node.lines(decision="refused")] == [1, 2]


def test_a_listing_that_leaves_something_out_refuses_nothing(
    stage_with: type["Stage"], tmp_path: Path
) -> None:
    node = Audited(stage_with, tmp_path)
    create(as_user(node.stage, "admin"), "orders")

    answer = as_user(node.stage, "alice").ask(MetadataRequest(topics=None), MetadataResponse, 12)

    assert answer.topics == ()
    assert node.lines(decision="refused") == []


def test_data_is_recorded_only_if_asked_for(stage_with: type["Stage"], tmp_path: Path) -> None:
    for directory, data in ((tmp_path / "without", False), (tmp_path / "with", True)):
        node = Audited(stage_with, directory, data=data)
        admin = as_user(node.stage, "admin")
        create(admin, "orders")
        for _ in range(4):
            assert produce(admin, "orders") == ErrorCode.NONE
        node.stage.run(70 * SECOND)

        counts = [(line["resource"], line["count"]) for line in node.lines(api="Produce")]
        assert counts == ([("orders", 4)] if data else [])
        assert b"secret record" not in b"".join(read_lines(str(directory)))


def test_logins_are_recorded_with_mechanism_and_reason(stage_with: type["Stage"], tmp_path: Path) -> None:
    node = Audited(stage_with, tmp_path)

    log_in(node.stage.client(), "alice")
    log_in(node.stage.client(), "alice", "wrong-pw")
    log_in(node.stage.client(), "nobody", "wrong-pw")

    rows = [
        (line["principal"], line["resource"], line["decision"], line["error"])
        for line in node.lines(operation="login")
    ]
    assert rows == [
        ("User:alice", "alice", "allowed", None),
        ("User:ANONYMOUS", "alice", "refused", "alice: unknown user or wrong password"),
        ("User:ANONYMOUS", "nobody", "refused", "nobody: unknown user or wrong password"),
    ]
    assert {line["mechanism"] for line in node.lines(operation="login")} == {"SCRAM-SHA-256"}
    assert b"-pw" not in b"".join(read_lines(str(tmp_path)))


def test_who_does_not_wait_for_the_answer_is_recorded(stage_with: type["Stage"], tmp_path: Path) -> None:
    node = Audited(stage_with, tmp_path)
    admin = as_user(node.stage, "admin")
    create(admin, "orders")

    admin.send(DeleteTopicsRequest(topic_names=("orders",), timeout_ms=1_000), 5)
    admin.leave()

    (line,) = node.lines(api="DeleteTopics")
    assert (line["resource"], line["error"]) == ("orders", "not answered: the client has left")


def test_the_topic_has_the_entries_and_clients_cannot_write_to_it(
    stage_with: type["Stage"], tmp_path: Path
) -> None:
    node = Audited(stage_with, tmp_path)
    admin = as_user(node.stage, "admin")
    create(admin, "orders")
    lines = node.lines()

    partition = node.stage.backend.partitions.find("__audit", 0)

    assert partition is not None
    assert partition.high_watermark == len(lines)
    topic = node.stage.backend.controller.image.topic("__audit")
    assert topic is not None
    assert topic.internal
    assert produce(admin, "__audit") == ErrorCode.INVALID_TOPIC_EXCEPTION
    # What is written there is not recorded: one entry would lead to the next.
    node.stage.run(20 * SECOND)
    assert partition.high_watermark == len(node.lines())


def test_the_tables_name_apis_that_there_are() -> None:
    names = {api.name for api in APIS.values()}

    assert ALLOWED.keys() <= names
    assert _DETAILS.keys() <= names


def test_names_that_clients_make_up_are_not_kept(stage_with: type["Stage"], tmp_path: Path) -> None:
    node = Audited(stage_with, tmp_path)
    alice = as_user(node.stage, "alice")

    names = tuple(long_names(100))

    def describe() -> None:
        for begin in range(0, len(names), 5):
            lot = names[begin : begin + 5]
            answer = alice.ask(DescribeGroupsRequest(groups=lot), DescribeGroupsResponse, 5)
            assert {row.error_code for row in answer.groups} == {ErrorCode.GROUP_AUTHORIZATION_FAILED}

    assert kept_bytes(describe) < 1 << 20
    refused = node.lines(api="DescribeGroups", decision="refused")
    assert [line["resource"] for line in refused] == [name[:256] for name in names]
