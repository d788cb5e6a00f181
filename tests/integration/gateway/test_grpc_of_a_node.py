"""gRPC as `penstock up` serves it: at its address, over a restart of the gateway, until the node stops."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from penstock.v1.penstock_pb2 import AckRequest, CreateTopicRequest, PublishRequest, SubscribeRequest
from penstock.v1.penstock_pb2_grpc import PenstockStub
from tests.support.clusters import until
from tests.support.nodes import NodeProcess


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    started = NodeProcess(tmp_path / "data", "rest.enabled=true").start()
    yield started
    started.kill()


def penstock(channel: Any) -> Any:
    return PenstockStub(channel)  # type: ignore[no-untyped-call]


def subscribed(stub: Any) -> tuple[Any, Any] | None:
    """A stream and its first message; None if it was sent to the server that is gone."""
    stream = stub.Subscribe(SubscribeRequest(topics=["jobs"], group="g"), wait_for_ready=True, timeout=60)
    try:
        return stream, next(stream)
    except grpc.RpcError as error:
        if error.code() != grpc.StatusCode.UNAVAILABLE:
            raise
        return None


def test_a_subscription_survives_the_gateway_and_ends_with_the_node(node: NodeProcess) -> None:
    with grpc.insecure_channel(node.ready["grpc"]) as channel:
        stub = penstock(channel)
        stub.CreateTopic(CreateTopicRequest(name="jobs", partitions=1), wait_for_ready=True, timeout=30)
        stub.Publish(PublishRequest(topic="jobs", value=b"first"))
        (gateway,) = node.gateways()

        # A stream that loses its server is opened again by its client.
        broken = stub.Subscribe(SubscribeRequest(topics=["jobs"], group="g", lease_ms=500), timeout=60)
        next(broken)
        os.kill(gateway, signal.SIGKILL)
        with pytest.raises(grpc.RpcError) as lost:
            next(broken)
        stream, again = until(lambda: subscribed(stub), "the gateway is back")
        stub.Ack(AckRequest(group="g", receipts=[again.receipt]))
        health = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
        node.stop()
        with pytest.raises(grpc.RpcError) as stopped:
            next(stream)

    assert lost.value.code() == grpc.StatusCode.UNAVAILABLE
    assert (again.value, again.attempt) == (b"first", 2)
    assert health.status == health_pb2.HealthCheckResponse.SERVING
    assert stopped.value.code() == grpc.StatusCode.UNAVAILABLE
    assert stopped.value.details() == "the server is stopping"
