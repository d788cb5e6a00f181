"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs and ListConfigResources."""

from typing import TYPE_CHECKING, Any

import pytest

from penstock.core.metadata import ConfigOperation, ConfigResourceType, CreateTopic
from penstock.core.model import TopicId
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsRequestConfig,
    AlterConfigsRequestResource,
    AlterConfigsResponse,
)
from penstock.core.protocol.messages.create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestConfig,
    CreateTopicsRequestTopic,
    CreateTopicsResponse,
)
from penstock.core.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsRequestResource,
    DescribeConfigsResponse,
    DescribeConfigsResponseConfig,
    DescribeConfigsResponseResource,
)
from penstock.core.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestConfig,
    IncrementalAlterConfigsRequestResource,
    IncrementalAlterConfigsResponse,
)
from penstock.core.protocol.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from penstock.core.protocol.schema import ZERO_UUID
from penstock.security import AclOperation
from penstock.server.kafka.config_resources import KEYS_MAX
from penstock.server.kafka.handlers import describe_configs

if TYPE_CHECKING:
    from tests.unit.server.kafka.handlers.conftest import Stage

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = (int(operation) for operation in ConfigOperation)


@pytest.fixture
def stage(stage: "Stage") -> "Stage":
    """A node that has the topic `orders`."""
    stage.submit(CreateTopic("orders", TopicId(ZERO_UUID), 1, 1))
    return stage


def described(
    stage: "Stage", kind: int, name: str, keys: tuple[str, ...] | None = None, version: int = 4, **more: Any
) -> DescribeConfigsResponseResource:
    resource = DescribeConfigsRequestResource(resource_type=kind, resource_name=name, configuration_keys=keys)
    request = DescribeConfigsRequest(resources=(resource,), **more)
    (row,) = stage.ask(request, DescribeConfigsResponse, version).results
    assert (row.resource_type, row.resource_name) == (kind, name)
    return row


def setting(row: DescribeConfigsResponseResource, name: str) -> DescribeConfigsResponseConfig:
    return next(config for config in row.configs if config.name == name)


def value(stage: "Stage", kind: int, name: str, key: str) -> str | None:
    return setting(described(stage, kind, name), key).value


def replacing(kind: int, name: str, **configs: str | None) -> AlterConfigsRequestResource:
    return AlterConfigsRequestResource(
        resource_type=kind,
        resource_name=name,
        configs=tuple(
            AlterConfigsRequestConfig(name=key.replace("_", "."), value=text) for key, text in configs.items()
        ),
    )


def replace(stage: "Stage", *resources: AlterConfigsRequestResource, **more: Any) -> list[ErrorCode]:
    version = more.pop("version", 2)
    request = AlterConfigsRequest(resources=resources, validate_only=more.pop("validate_only", False))
    return [ErrorCode(row.error_code) for row in stage.ask(request, AlterConfigsResponse, version).responses]


def changing(
    kind: int, name: str, *changes: tuple[int, str, str | None]
) -> IncrementalAlterConfigsRequestResource:
    return IncrementalAlterConfigsRequestResource(
        resource_type=kind,
        resource_name=name,
        configs=tuple(
            IncrementalAlterConfigsRequestConfig(name=key, config_operation=operation, value=text)
            for operation, key, text in changes
        ),
    )


def change(
    stage: "Stage",
    *resources: IncrementalAlterConfigsRequestResource,
    version: int = 1,
    validate_only: bool = False,
) -> list[ErrorCode]:
    request = IncrementalAlterConfigsRequest(resources=resources, validate_only=validate_only)
    answer = stage.ask(request, IncrementalAlterConfigsResponse, version)
    assert all((row.error_message is None) == (row.error_code == 0) for row in answer.responses)
    return [ErrorCode(row.error_code) for row in answer.responses]


@pytest.mark.parametrize("version", range(5))
def test_every_version_describes_a_topic(stage: "Stage", version: int) -> None:
    assert change(stage, changing(TOPIC, "orders", (SET, "retention.ms", "1000"))) == [ErrorCode.NONE]

    row = described(stage, TOPIC, "orders", version=version)

    own, default = setting(row, "retention.ms"), setting(row, "cleanup.policy")
    assert (row.error_code, row.error_message) == (0, None)
    assert (own.value, own.read_only, own.is_sensitive) == ("1000", False, False)
    assert (own.config_source, default.config_source) == ((1, 5) if version >= 1 else (-1, -1))
    assert (own.is_default, default.is_default) == ((False, False) if version >= 1 else (False, True))
    assert own.config_type == (5 if version >= 3 else 0)
    assert own.synonyms == ()


def test_synonyms_and_documentation_come_when_asked_for(stage: "Stage") -> None:
    change(stage, changing(TOPIC, "orders", (SET, "retention.ms", "1000")))
    change(stage, changing(BROKER, "", (SET, "log.retention.ms", "2000")))

    row = described(stage, TOPIC, "orders", include_synonyms=True, include_documentation=True)
    silent = described(stage, TOPIC, "orders")

    config = setting(row, "retention.ms")
    assert [(known.name, known.value, known.source) for known in config.synonyms[:2]] == [
        ("retention.ms", "1000", 1),
        ("log.retention.ms", "2000", 3),
    ]
    assert config.synonyms[-1].source == 5
    assert config.documentation
    assert setting(silent, "retention.ms").documentation is None


@pytest.mark.parametrize("keys", [None, ()])
def test_no_filter_and_an_empty_filter_tell_every_key(stage: "Stage", keys: tuple[str, ...] | None) -> None:
    assert len(described(stage, TOPIC, "orders", keys).configs) > 25


def test_a_filter_tells_the_keys_that_it_names(stage: "Stage") -> None:
    row = described(stage, TOPIC, "orders", ("segment.bytes", "no.such.key", "cleanup.policy"))

    assert [config.name for config in row.configs] == ["cleanup.policy", "segment.bytes"]


def test_a_broker_tells_its_own_settings(stage: "Stage") -> None:
    own = described(stage, BROKER, "1")

    assert (setting(own, "num.partitions").value, setting(own, "num.partitions").config_source) == ("2", 4)
    assert setting(own, "num.partitions").read_only
    password = setting(own, "ssl.key.password")
    assert (password.value, password.is_sensitive) == (None, True)


def test_all_brokers_share_what_was_set_for_all_and_nothing_else(stage: "Stage") -> None:
    before = described(stage, BROKER, "")
    change(stage, changing(BROKER, "", (SET, "log.retention.ms", "2000")))

    after = described(stage, BROKER, "", include_synonyms=True)

    assert (before.error_code, before.configs) == (0, ())
    (config,) = after.configs
    assert (config.name, config.value, config.config_source) == ("log.retention.ms", "2000", 3)
    assert [(known.name, known.source) for known in config.synonyms] == [("log.retention.ms", 3)]


def test_groups_and_client_metrics_have_settings_too(stage: "Stage") -> None:
    assert value(stage, GROUP, "readers", "consumer.session.timeout.ms") == "45000"
    assert value(stage, METRICS, "subscription", "interval.ms") == "300000"


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "no spaces", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TOPIC, "", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "2", ErrorCode.INVALID_REQUEST),
        (BROKER, "one", ErrorCode.INVALID_REQUEST),
        (GROUP, "", ErrorCode.INVALID_REQUEST),
        (METRICS, "", ErrorCode.INVALID_REQUEST),
        (LOGGER, "1", ErrorCode.INVALID_REQUEST),
        (99, "x", ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_cannot_be_described_has_a_code_a_sentence_and_no_settings(
    stage: "Stage", kind: int, name: str, code: ErrorCode
) -> None:
    row = described(stage, kind, name)

    assert row.error_code == code
    assert row.error_message
    assert row.configs == ()


@pytest.mark.parametrize(
    ("kind", "name", "guarded", "code"),
    [
        (TOPIC, "orders", "orders", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        (GROUP, "readers", "readers", ErrorCode.GROUP_AUTHORIZATION_FAILED),
        (BROKER, "1", "kafka-cluster", ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        (METRICS, "m", "kafka-cluster", ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
    ],
)
def test_settings_are_guarded_by_the_resource_they_belong_to(
    stage: "Stage", kind: int, name: str, guarded: str, code: ErrorCode
) -> None:
    stage.authorizer.denied = {
        (AclOperation.DESCRIBE_CONFIGS, guarded),
        (AclOperation.ALTER_CONFIGS, guarded),
    }

    assert described(stage, kind, name).error_code == code
    assert change(stage, changing(kind, name)) == [code]
    assert replace(stage, replacing(kind, name)) == [code]


@pytest.mark.parametrize("version", range(3))
def test_replacing_settings_returns_the_others_to_their_defaults(stage: "Stage", version: int) -> None:
    change(stage, changing(TOPIC, "orders", (SET, "retention.ms", "1000")))

    outcome = replace(stage, replacing(TOPIC, "orders", segment_bytes="2000000"), version=version)

    assert outcome == [ErrorCode.NONE]
    assert value(stage, TOPIC, "orders", "segment.bytes") == "2000000"
    assert value(stage, TOPIC, "orders", "retention.ms") == "604800000"


def test_replacing_is_refused_as_a_whole_and_can_be_tried(stage: "Stage") -> None:
    tried = replace(stage, replacing(TOPIC, "orders", segment_bytes="2000000"), validate_only=True)
    refused = replace(
        stage,
        replacing(TOPIC, "orders", segment_bytes="2000000", retention_ms="soon"),
        replacing(TOPIC, "missing"),
        replacing(LOGGER, "1"),
        replacing(GROUP, "g", share_isolation_level=None),
    )

    assert tried == [ErrorCode.NONE]
    assert sorted(refused) == sorted(
        [
            ErrorCode.INVALID_CONFIG,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.INVALID_REQUEST,
            ErrorCode.INVALID_REQUEST,
        ]
    )
    assert value(stage, TOPIC, "orders", "segment.bytes") == str(1 << 30)


@pytest.mark.parametrize("version", range(2))
def test_single_settings_are_set_deleted_extended_and_cut(stage: "Stage", version: int) -> None:
    steps = [
        ((SET, "retention.ms", "1000"), "retention.ms", "1000"),
        ((DELETE, "retention.ms", None), "retention.ms", "604800000"),
        ((APPEND, "cleanup.policy", "compact"), "cleanup.policy", "delete,compact"),
        ((SUBTRACT, "cleanup.policy", "delete"), "cleanup.policy", "compact"),
    ]
    for step, key, expected in steps:
        assert change(stage, changing(TOPIC, "orders", step), version=version) == [ErrorCode.NONE]
        assert value(stage, TOPIC, "orders", key) == expected


@pytest.mark.parametrize(
    ("step", "code"),
    [
        ((SET, "retention.ms", "soon"), ErrorCode.INVALID_CONFIG),
        ((SET, "retention.ms", None), ErrorCode.INVALID_REQUEST),
        ((SET, "no.such.key", "1"), ErrorCode.INVALID_CONFIG),
        ((APPEND, "retention.ms", "1"), ErrorCode.INVALID_CONFIG),
        ((9, "retention.ms", "1"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_bad_change_is_refused_and_changes_nothing(
    stage: "Stage", step: tuple[int, str, str | None], code: ErrorCode
) -> None:
    outcome = change(stage, changing(TOPIC, "orders", (SET, "segment.bytes", "2000000"), step))

    assert outcome == [code]
    assert value(stage, TOPIC, "orders", "segment.bytes") == str(1 << 30)


def test_a_resource_or_a_key_that_comes_twice_is_refused_once(stage: "Stage") -> None:
    step = (SET, "retention.ms", "1000")

    resources = change(stage, changing(TOPIC, "orders", step), changing(TOPIC, "orders", step))
    keys = change(stage, changing(TOPIC, "orders", step, step))
    legacy = replace(stage, replacing(TOPIC, "orders"), replacing(TOPIC, "orders"))

    assert (resources, keys, legacy) == ([ErrorCode.INVALID_REQUEST],) * 3
    assert value(stage, TOPIC, "orders", "retention.ms") == "604800000"


def test_a_change_can_be_tried(stage: "Stage") -> None:
    outcome = change(stage, changing(TOPIC, "orders", (SET, "retention.ms", "1000")), validate_only=True)

    assert outcome == [ErrorCode.NONE]
    assert value(stage, TOPIC, "orders", "retention.ms") == "604800000"


def test_the_oldest_version_lists_client_metrics_only(stage: "Stage") -> None:
    change(stage, changing(METRICS, "subscription", (SET, "interval.ms", "300000")))
    change(stage, changing(GROUP, "readers", (SET, "share.isolation.level", "read_committed")))

    oldest = stage.ask(ListConfigResourcesRequest(), ListConfigResourcesResponse, 0)
    newest = stage.ask(ListConfigResourcesRequest(), ListConfigResourcesResponse, 1)
    groups = stage.ask(
        ListConfigResourcesRequest(resource_types=(GROUP, GROUP)), ListConfigResourcesResponse, 1
    )

    assert [row.resource_name for row in oldest.config_resources] == ["subscription"]
    assert [(row.resource_type, row.resource_name) for row in newest.config_resources] == [
        (ConfigResourceType.TOPIC, "orders"),
        (ConfigResourceType.BROKER, "1"),
        (LOGGER, "1"),
        (ConfigResourceType.CLIENT_METRICS, "subscription"),
        (ConfigResourceType.GROUP, "readers"),
    ]
    assert [row.resource_name for row in groups.config_resources] == ["readers"]


def test_kinds_that_do_not_exist_and_callers_without_rights_get_no_list(stage: "Stage") -> None:
    unknown = stage.ask(ListConfigResourcesRequest(resource_types=(3,)), ListConfigResourcesResponse, 1)
    stage.authorizer.denied = {(AclOperation.DESCRIBE_CONFIGS, "kafka-cluster")}
    refused = stage.ask(ListConfigResourcesRequest(), ListConfigResourcesResponse, 1)

    assert (unknown.error_code, unknown.config_resources) == (ErrorCode.UNSUPPORTED_VERSION, ())
    assert (refused.error_code, refused.config_resources) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ())


def test_a_response_has_so_many_bytes_and_what_has_no_room_is_refused(
    stage: "Stage", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(describe_configs, "RESPONSE_BYTES_MAX", 20_000)
    names = ["orders", *[f"g{number}" for number in range(100)]]
    resources = tuple(
        DescribeConfigsRequestResource(
            resource_type=TOPIC if name == "orders" else GROUP, resource_name=name, configuration_keys=None
        )
        for name in names
    )
    client = stage.client()
    client.send(DescribeConfigsRequest(resources=resources), 4)
    stage.run()

    # What is refused has a row, too.
    assert len(client.tcp.written) < 20_000 + 100 * len(resources)
    rows = client.receive(DescribeConfigsResponse, 4).results
    assert [row.resource_name for row in rows] == names
    refused = [row for row in rows if row.error_code]
    assert {(row.error_code, row.configs, bool(row.error_message)) for row in refused} == {
        (ErrorCode.INVALID_REQUEST, (), True)
    }
    assert rows[-len(refused) :] == tuple(refused)
    assert 20 < len(rows) - len(refused) < 40


def test_a_group_has_its_own_settings_beside_others_that_have_none(stage: "Stage") -> None:
    key = "consumer.session.timeout.ms"
    change(stage, changing(GROUP, "own", (SET, key, "50000")))
    resources = tuple(
        DescribeConfigsRequestResource(resource_type=GROUP, resource_name=name, configuration_keys=keys)
        for name, keys in (("a", None), ("own", None), ("b", None), ("c", (key,)))
    )

    rows = stage.ask(DescribeConfigsRequest(resources=resources), DescribeConfigsResponse, 4).results

    assert [setting(row, key).value for row in rows] == ["45000", "50000", "45000", "45000"]
    assert rows[0].configs == rows[2].configs
    assert [len(row.configs) for row in rows[2:]] == [len(rows[0].configs), 1]


@pytest.mark.parametrize(
    "configs",
    [
        {f"k.{number}": "v" for number in range(KEYS_MAX + 1)},
        {"k" * 100_000: "v"},
        {"retention.ms": "1" * 40_000},
    ],
    ids=["many", "long name", "long value"],
)
def test_settings_that_nobody_has_so_many_of_are_refused_by_every_api(
    stage: "Stage", configs: dict[str, str]
) -> None:
    topic = CreateTopicsRequestTopic(
        name="new",
        num_partitions=1,
        replication_factor=1,
        assignments=(),
        configs=tuple(CreateTopicsRequestConfig(name=key, value=text) for key, text in configs.items()),
    )
    creation = CreateTopicsRequest(topics=(topic,), timeout_ms=1_000)

    (row,) = stage.ask(creation, CreateTopicsResponse, 7).topics
    codes = [
        *replace(stage, replacing(TOPIC, "orders", **configs)),
        *change(stage, changing(TOPIC, "orders", *[(SET, key, text) for key, text in configs.items()])),
        row.error_code,
    ]

    assert codes == [ErrorCode.INVALID_CONFIG] * 3
    # It does not repeat what was too long.
    assert len(row.error_message or "") < 200


def test_items_are_added_to_a_list_once(stage: "Stage") -> None:
    key = "cleanup.policy"
    change(stage, changing(TOPIC, "orders", (SET, key, "delete")))

    added = change(stage, changing(TOPIC, "orders", (APPEND, key, "compact,delete")))
    removed = change(stage, changing(TOPIC, "orders", (SUBTRACT, key, "delete,other")))

    assert (added, removed) == ([ErrorCode.NONE], [ErrorCode.NONE])
    assert value(stage, TOPIC, "orders", key) == "compact"
