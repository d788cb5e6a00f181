"""CreateTopics, DeleteTopics and CreatePartitions."""

from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsRequestAssignment,
    CreatePartitionsRequestTopic,
    CreatePartitionsResponse,
)
from penstock.core.protocol.messages.create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestAssignment,
    CreateTopicsRequestConfig,
    CreateTopicsRequestTopic,
    CreateTopicsResponse,
    CreateTopicsResponseTopic,
)
from penstock.core.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsRequestTopic,
    DeleteTopicsResponse,
)
from penstock.core.protocol.schema import ZERO_UUID
from penstock.security import AclOperation, QuotaType

if TYPE_CHECKING:
    from tests.unit.server.kafka.handlers.conftest import Stage


def topic(name: str, partitions: int = 1, factor: int = 1, **configs: str | None) -> CreateTopicsRequestTopic:
    return CreateTopicsRequestTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        assignments=(),
        configs=tuple(
            CreateTopicsRequestConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ),
    )


def create(*topics: CreateTopicsRequestTopic, **more: Any) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=topics, **more)


def codes(rows: Any) -> list[ErrorCode]:
    return [ErrorCode(row.error_code) for row in rows]


def created(stage: "Stage", request: CreateTopicsRequest, version: int = 7) -> CreateTopicsResponseTopic:
    (row,) = stage.ask(request, CreateTopicsResponse, version).topics
    return row


def doomed(*names: str | None, ids: tuple[UUID, ...] = ()) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(
        topics=(
            *(DeleteTopicsRequestTopic(name=name, topic_id=ZERO_UUID) for name in names),
            *(DeleteTopicsRequestTopic(name=None, topic_id=each) for each in ids),
        ),
        timeout_ms=1_000,
    )


def grown(name: str, count: int, *placed: tuple[int, ...]) -> CreatePartitionsRequestTopic:
    return CreatePartitionsRequestTopic(
        name=name,
        count=count,
        assignments=tuple(CreatePartitionsRequestAssignment(broker_ids=each) for each in placed) or None,
    )


@pytest.mark.parametrize("version", range(8))
def test_every_version_creates_a_topic(stage: "Stage", version: int) -> None:
    row = created(stage, create(topic("orders", 3)), version)

    known = stage.backend.controller.image.topic("orders")
    assert known is not None
    assert (row.name, row.error_code) == ("orders", 0)
    assert row.error_message == (None if version >= 1 else "")
    assert row.topic_id == (known.id if version >= 7 else ZERO_UUID)
    assert row.num_partitions == (3 if version >= 5 else -1)
    assert len(known.partitions) == 3


def test_the_answer_tells_every_setting_with_its_source(stage: "Stage") -> None:
    row = created(stage, create(topic("orders", retention_ms="1000")))

    assert row.configs is not None
    told = {config.name: (config.value, config.config_source) for config in row.configs}
    assert told["retention.ms"] == ("1000", 1)
    assert told["cleanup.policy"] == ("delete", 5)
    assert len(told) > 25


def test_validation_alone_answers_the_same_and_creates_nothing(stage: "Stage") -> None:
    request = create(topic("orders", -1, -1, retention_ms="1000"), validate_only=True)

    row = created(stage, request)

    assert (row.error_code, row.num_partitions, row.replication_factor) == (0, 2, 1)
    assert row.configs is not None
    assert {config.name: config.value for config in row.configs}["retention.ms"] == "1000"
    assert stage.backend.controller.image.topic_names() == []
    assert stage.authorizer.charged_of(QuotaType.MUTATIONS) == [0]


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (topic("no spaces"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("fine", 0), ErrorCode.INVALID_PARTITIONS),
        (topic("fine", 1, 2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("fine", retention_ms="soon"), ErrorCode.INVALID_CONFIG),
        (topic("fine", no_such_key="1"), ErrorCode.INVALID_CONFIG),
        (topic("fine", retention_ms=None), ErrorCode.INVALID_CONFIG),
        (topic("taken"), ErrorCode.TOPIC_ALREADY_EXISTS),
    ],
)
def test_a_refused_topic_has_its_code_a_sentence_and_no_layout(
    stage: "Stage", wanted: CreateTopicsRequestTopic, code: ErrorCode
) -> None:
    created(stage, create(topic("taken")))

    row = created(stage, create(wanted))

    assert row.error_code == code
    assert row.error_message
    assert (row.num_partitions, row.replication_factor, row.configs) == (-1, -1, ())


def test_one_refused_topic_does_not_hold_up_the_others(stage: "Stage") -> None:
    answer = stage.ask(create(topic("a"), topic("b b"), topic("c")), CreateTopicsResponse, 7)

    assert [row.name for row in answer.topics] == ["a", "b b", "c"]
    assert codes(answer.topics) == [0, ErrorCode.INVALID_TOPIC_EXCEPTION, 0]


def test_a_name_that_comes_twice_is_refused_once(stage: "Stage") -> None:
    answer = stage.ask(create(topic("a"), topic("b"), topic("a", 2)), CreateTopicsResponse, 7)

    assert [(row.name, row.error_code) for row in answer.topics] == [
        ("a", ErrorCode.INVALID_REQUEST),
        ("b", ErrorCode.NONE),
    ]
    assert stage.backend.controller.image.topic_names() == ["b"]


def test_replicas_can_be_placed_by_hand(stage: "Stage") -> None:
    placed = CreateTopicsRequestTopic(
        name="orders",
        num_partitions=-1,
        replication_factor=-1,
        assignments=(
            CreateTopicsRequestAssignment(partition_index=1, broker_ids=(1,)),
            CreateTopicsRequestAssignment(partition_index=0, broker_ids=(1,)),
        ),
        configs=(),
    )

    row = created(stage, create(placed))

    assert (row.error_code, row.num_partitions) == (0, 2)


def test_an_empty_request_has_an_empty_answer(stage: "Stage") -> None:
    assert stage.ask(create(), CreateTopicsResponse, 7).topics == ()


def test_a_sentence_about_an_endless_key_still_fits_an_old_answer(stage: "Stage") -> None:
    wanted = CreateTopicsRequestTopic(
        name="orders",
        num_partitions=1,
        replication_factor=1,
        assignments=(),
        configs=(CreateTopicsRequestConfig(name="\x00" * 32_000, value="1"),),
    )

    row = created(stage, create(wanted), 1)

    assert row.error_code == ErrorCode.INVALID_CONFIG
    assert row.error_message is not None
    assert len(row.error_message) <= 1_000


def test_who_may_not_create_is_refused_and_who_may_not_read_settings_gets_none(stage: "Stage") -> None:
    stage.authorizer.denied = {
        (AclOperation.CREATE, "kafka-cluster"),
        (AclOperation.CREATE, "secret"),
        (AclOperation.DESCRIBE_CONFIGS, "open"),
    }

    answer = stage.ask(create(topic("secret"), topic("open")), CreateTopicsResponse, 7)

    refused, fine = answer.topics
    assert refused.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert (fine.error_code, fine.topic_config_error_code) == (0, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert (fine.num_partitions, fine.configs) == (-1, ())


def test_new_partitions_are_charged_as_mutations(stage: "Stage") -> None:
    created(stage, create(topic("orders", 3)))

    assert stage.authorizer.charged_of(QuotaType.MUTATIONS) == [3]


@pytest.mark.parametrize("version", range(7))
def test_every_version_deletes_a_topic(stage: "Stage", version: int) -> None:
    created(stage, create(topic("orders")))
    request = doomed("orders", None) if version >= 6 else None

    answer = stage.ask(
        request or DeleteTopicsRequest(topic_names=("orders", "gone"), timeout_ms=1_000),
        DeleteTopicsResponse,
        version,
    )

    missing = ErrorCode.INVALID_REQUEST if version >= 6 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes(answer.responses) == [0, missing]
    assert stage.backend.controller.image.topic_names() == []


def test_topics_are_deleted_by_id_and_the_answer_tells_both(stage: "Stage") -> None:
    topic_id = created(stage, create(topic("orders"))).topic_id
    unknown = UUID(int=3)

    answer = stage.ask(doomed(ids=(topic_id, unknown)), DeleteTopicsResponse, 6)

    assert [(row.name, row.topic_id, row.error_code) for row in answer.responses] == [
        ("orders", topic_id, ErrorCode.NONE),
        (None, unknown, ErrorCode.UNKNOWN_TOPIC_ID),
    ]


def test_a_topic_named_twice_or_by_both_name_and_id_is_not_deleted(stage: "Stage") -> None:
    topic_id = created(stage, create(topic("orders"))).topic_id
    both = DeleteTopicsRequest(
        topics=(DeleteTopicsRequestTopic(name="orders", topic_id=topic_id),), timeout_ms=1_000
    )

    twice = stage.ask(doomed("orders", "orders"), DeleteTopicsResponse, 6)
    mixed = stage.ask(both, DeleteTopicsResponse, 6)

    assert codes(twice.responses) == [ErrorCode.INVALID_REQUEST]
    assert codes(mixed.responses) == [ErrorCode.INVALID_REQUEST]
    assert stage.backend.controller.image.topic_names() == ["orders"]


@pytest.mark.parametrize(
    ("version", "code"), [(2, ErrorCode.INVALID_REQUEST), (3, ErrorCode.TOPIC_DELETION_DISABLED)]
)
def test_a_deletion_that_is_switched_off_has_its_code_where_clients_know_it(
    stage_with: type["Stage"], version: int, code: ErrorCode
) -> None:
    stage = stage_with({"delete.topic.enable": "false"})
    created(stage, create(topic("orders")))

    answer = stage.ask(
        DeleteTopicsRequest(topic_names=("orders",), timeout_ms=1_000), DeleteTopicsResponse, version
    )

    assert codes(answer.responses) == [code]


@pytest.mark.parametrize("operation", [AclOperation.DESCRIBE, AclOperation.DELETE])
def test_who_may_not_delete_is_refused_and_learns_no_name(stage: "Stage", operation: AclOperation) -> None:
    topic_id = created(stage, create(topic("orders"))).topic_id
    stage.authorizer.denied = {(operation, "orders")}

    answer = stage.ask(doomed("orders", ids=(topic_id,)), DeleteTopicsResponse, 6)

    assert codes(answer.responses) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED] * 2
    assert [row.name for row in answer.responses] == ["orders", None]
    assert stage.backend.controller.image.topic_names() == ["orders"]


@pytest.mark.parametrize("version", range(4))
def test_every_version_adds_partitions(stage: "Stage", version: int) -> None:
    created(stage, create(topic("orders")))
    request = CreatePartitionsRequest(
        topics=(grown("orders", 3), grown("missing", 3)), timeout_ms=1_000, validate_only=False
    )

    answer = stage.ask(request, CreatePartitionsResponse, version)

    assert codes(answer.results) == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert all(stage.backend.partitions.find("orders", index) for index in range(3))
    assert stage.authorizer.charged[-1] == (QuotaType.MUTATIONS, 2)


def test_partitions_are_only_ever_added_and_named_once(stage: "Stage") -> None:
    created(stage, create(topic("orders", 2)))
    created(stage, create(topic("placed")))
    request = CreatePartitionsRequest(
        topics=(grown("orders", 2), grown("placed", 2, (1,)), grown("x", 5), grown("x", 6)),
        timeout_ms=1_000,
        validate_only=True,
    )

    answer = stage.ask(request, CreatePartitionsResponse, 3)

    assert codes(answer.results) == [ErrorCode.INVALID_PARTITIONS, 0, ErrorCode.INVALID_REQUEST]
    assert stage.backend.partitions.find("placed", 1) is None


def test_who_may_not_alter_a_topic_adds_no_partitions(stage: "Stage") -> None:
    created(stage, create(topic("orders")))
    stage.authorizer.denied = {(AclOperation.ALTER, "orders")}
    request = CreatePartitionsRequest(topics=(grown("orders", 3),), timeout_ms=1_000, validate_only=False)

    answer = stage.ask(request, CreatePartitionsResponse, 3)

    assert codes(answer.results) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
