"""Client metrics: subscriptions and pushes."""

import gzip
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from penstock.broker import telemetry
from penstock.broker.telemetry import TELEMETRY_BYTES_MAX
from penstock.core.metadata import (
    ConfigChange,
    ConfigOperation,
    ConfigResource,
    ConfigResourceType,
    IncrementalAlterConfigs,
    Ok,
)
from penstock.core.model import MILLISECOND, SECOND
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.core.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from penstock.core.protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from penstock.core.records import CompressionType
from penstock.core.records.compression import decompress

if TYPE_CHECKING:
    from tests.unit.server.kafka.handlers.conftest import Client, Stage

NOBODY = UUID(int=0)
ME = UUID("2f4b1a52-1111-4222-8333-123456789abc")
GZIP, NO_CODEC, UNKNOWN_CODEC = 1, 0, 9


def subscribe(stage: "Stage", name: str, **values: str) -> None:
    changes = tuple(
        ConfigChange(ConfigOperation.SET, key.replace("_", "."), value) for key, value in values.items()
    )
    command = IncrementalAlterConfigs(ConfigResource(ConfigResourceType.CLIENT_METRICS, name), changes)
    assert stage.submit(command) == Ok()


def ask(client: "Client", instance: UUID = ME) -> GetTelemetrySubscriptionsResponse:
    request = GetTelemetrySubscriptionsRequest(client_instance_id=instance)
    return client.ask(request, GetTelemetrySubscriptionsResponse, 0)


def push(
    client: "Client",
    subscription_id: int,
    metrics: bytes = b"m",
    *,
    codec: int = NO_CODEC,
    terminating: bool = False,
) -> int:
    request = PushTelemetryRequest(
        client_instance_id=ME,
        subscription_id=subscription_id,
        terminating=terminating,
        compression_type=codec,
        metrics=metrics,
    )
    return client.ask(request, PushTelemetryResponse, 0).error_code


def named_client(stage: "Stage", software: str) -> "Client":
    client = stage.client()
    request = ApiVersionsRequest(client_software_name=software, client_software_version="1.2")
    client.ask(request, ApiVersionsResponse, 3)
    return client


def counts(stage: "Stage", software: str) -> tuple[int, int]:
    metrics = stage.backstage.telemetry_metrics
    return metrics.pushes.of(software).count, metrics.bytes.of(software).count


def test_without_subscriptions_a_client_gets_an_id_and_nothing_to_push(stage: "Stage") -> None:
    response = ask(stage.client(), NOBODY)

    assert response.error_code == ErrorCode.NONE
    assert response.client_instance_id != NOBODY
    assert response.requested_metrics == ()
    assert (response.push_interval_ms, response.telemetry_max_bytes) == (300_000, TELEMETRY_BYTES_MAX)
    assert tuple(response.accepted_compression_types) == (4, 3, 1, 2)


def test_the_subscriptions_that_match_are_taken_together(stage: "Stage") -> None:
    subscribe(stage, "a", metrics="org.b,org.a", interval_ms="60000", match="client_software_name=lib.*")
    subscribe(stage, "b", metrics="org.a,org.c", interval_ms="30000", match="client_id=test")
    subscribe(stage, "c", metrics="*", interval_ms="200", match="client_id=test,client_software_version=9")

    response = ask(named_client(stage, "librdkafka"))

    assert response.client_instance_id == ME
    assert tuple(response.requested_metrics) == ("org.a", "org.b", "org.c")
    assert response.push_interval_ms == 30_000


def test_a_push_is_counted_by_the_software_and_unpacked(stage: "Stage") -> None:
    subscribe(stage, "a", metrics="*", interval_ms="1000")
    client = named_client(stage, "librdkafka")
    wanted = ask(client)
    assert tuple(wanted.requested_metrics) == ("*",)

    assert push(client, wanted.subscription_id, gzip.compress(bytes(1_000)), codec=GZIP) == ErrorCode.NONE

    assert counts(stage, "librdkafka") == (1, 1_000)


def test_a_large_push_is_unpacked_in_a_worker(stage: "Stage") -> None:
    subscribe(stage, "a", metrics="*", interval_ms="1000")
    client = named_client(stage, "java")
    payload = gzip.compress(bytes(index * 7919 % 251 for index in range(60_000)), compresslevel=0)

    assert push(client, ask(client).subscription_id, payload, codec=GZIP) == ErrorCode.NONE

    assert counts(stage, "java") == (1, 60_000)


def test_a_small_push_that_unpacks_to_much_is_unpacked_in_a_worker(
    stage: "Stage", monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: list[int] = []

    def watched(codec: CompressionType, packed: memoryview, limit_bytes: int) -> bytes:
        limits.append(limit_bytes)
        return decompress(codec, packed, limit_bytes)

    monkeypatch.setattr(telemetry, "decompress", watched)
    client = named_client(stage, "java")
    payload = gzip.compress(bytes(4 << 20))
    assert len(payload) < telemetry.ON_LOOP_BYTES_MAX

    assert push(client, ask(client).subscription_id, payload, codec=GZIP) == ErrorCode.NONE

    assert counts(stage, "java") == (1, 4 << 20)
    assert limits == [telemetry.ON_LOOP_UNPACKED_BYTES_MAX, telemetry.UNPACKED_BYTES_MAX]


def test_what_does_not_unpack_is_refused(stage: "Stage") -> None:
    client = stage.client()

    assert push(client, ask(client).subscription_id, b"no gzip", codec=GZIP) == ErrorCode.INVALID_RECORD
    assert counts(stage, "unknown") == (0, 0)


def test_a_push_for_subscriptions_that_have_changed_is_refused_and_the_client_may_ask(stage: "Stage") -> None:
    subscribe(stage, "a", metrics="x", interval_ms="1000000")
    client = stage.client()
    before = ask(client).subscription_id
    subscribe(stage, "a", metrics="x,y")

    assert push(client, before) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID

    after = ask(client)
    assert after.subscription_id != before
    assert push(client, after.subscription_id) == ErrorCode.NONE


def test_who_asks_or_pushes_too_often_is_throttled(stage: "Stage") -> None:
    subscribe(stage, "a", metrics="x", interval_ms="3600000")
    client = stage.client()
    wanted = ask(client)

    assert ask(client).error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert push(client, wanted.subscription_id) == ErrorCode.NONE
    assert push(client, wanted.subscription_id) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert stage.backstage.telemetry_metrics.refused.of("throttled").count == 2

    stage.run(3_600 * SECOND + MILLISECOND)

    assert push(client, wanted.subscription_id) == ErrorCode.NONE


def test_the_last_push_may_come_early_and_is_the_last(stage: "Stage") -> None:
    subscribe(stage, "a", metrics="x", interval_ms="3600000")
    client = stage.client()
    wanted = ask(client).subscription_id
    push(client, wanted)

    assert push(client, wanted, terminating=True) == ErrorCode.NONE
    assert push(client, wanted, terminating=True) == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("size", "codec", "code"),
    [
        (TELEMETRY_BYTES_MAX + 1, NO_CODEC, ErrorCode.TELEMETRY_TOO_LARGE),
        (1, UNKNOWN_CODEC, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    ],
)
def test_what_is_too_large_or_packed_in_an_unknown_way_is_refused(
    stage: "Stage", size: int, codec: int, code: ErrorCode
) -> None:
    client = stage.client()

    assert push(client, ask(client).subscription_id, bytes(size), codec=codec) == code


def test_a_push_without_an_instance_is_refused(stage: "Stage") -> None:
    request = PushTelemetryRequest(
        client_instance_id=NOBODY, subscription_id=1, terminating=False, compression_type=0, metrics=b""
    )

    assert stage.ask(request, PushTelemetryResponse, 0).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    "match",
    [
        "client_id=(a+)+",
        "client_id=a.*.*.*",
        "colour=red",
        "client_id",
        "client_id=[",
        r"client_id=\1",
        "client_id=a{9}",
    ],
)
def test_patterns_that_could_take_long_are_refused(stage: "Stage", match: str) -> None:
    resource = ConfigResource(ConfigResourceType.CLIENT_METRICS, "a")
    change = ConfigChange(ConfigOperation.SET, "match", match)

    reply = stage.submit(IncrementalAlterConfigs(resource, (change,)))

    assert "match must " in str(reply)


def test_telemetry_is_announced_while_somebody_asks_for_metrics(stage: "Stage") -> None:
    def is_announced() -> bool:
        request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
        keys = [api.api_key for api in stage.ask(request, ApiVersionsResponse, 3).api_keys]
        assert (71 in keys) is (72 in keys)
        return 71 in keys

    assert not is_announced()
    subscribe(stage, "a", interval_ms="1000")
    assert not is_announced()
    subscribe(stage, "a", metrics="*")
    assert is_announced()
