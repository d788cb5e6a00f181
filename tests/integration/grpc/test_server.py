"""Reflection, health, and input that is none."""

import gc
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from penstock.runtime.heap import give_back
from penstock.server.gateway.options import RestOptions
from penstock.server.grpc.options import GrpcOptions
from penstock.testing import Broker
from penstock.v1.penstock_pb2 import (
    DESCRIPTOR,
    START_EARLIEST,
    CommitRequest,
    CreateTopicRequest,
    DeleteTopicRequest,
    GetMessageRequest,
    NackRequest,
    OutgoingMessage,
    PollRequest,
    Position,
    PublishBatchRequest,
    PublishRequest,
    PublishResponse,
    SubscribeRequest,
)
from penstock.v1.penstock_pb2_grpc import PenstockStub
from tests.integration.grpc.conftest import ServerThread
from tests.support.clusters import until

# What a client of another queue would look for, of which this service is a superset.
FAMILIAR = """
  rpc CreateTopic(CreateTopicRequest) returns (Topic);
  rpc DeleteTopic(DeleteTopicRequest) returns (Empty);
  rpc ListTopics(Empty) returns (ListTopicsResponse);
  rpc Publish(PublishRequest) returns (PublishResponse);
  rpc PublishStream(stream PublishRequest) returns (stream PublishResponse);
  rpc Subscribe(SubscribeRequest) returns (stream Message);
  rpc Ack(AckRequest) returns (Empty);
  rpc Commit(CommitRequest) returns (Empty);
"""
CALL = re.compile(r"rpc (\w+)\((stream )?(\w+)\) returns \((stream )?(\w+)\);")


@pytest.mark.parametrize("call", CALL.findall(FAMILIAR), ids=lambda call: call[0])
def test_the_familiar_calls_have_their_familiar_types(call: tuple[str, ...]) -> None:
    method = DESCRIPTOR.services_by_name["Penstock"].methods_by_name[call[0]]

    assert (
        method.name,
        "stream " if method.client_streaming else "",
        method.input_type.name,
        "stream " if method.server_streaming else "",
        method.output_type.name,
    ) == call


class ReflectedService:
    """A client that knows an address and nothing else, as grpcurl does."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel
        self._reflection = reflection_pb2_grpc.ServerReflectionStub(channel)
        self._pool = descriptor_pool.DescriptorPool()

    def services(self) -> list[str]:
        listed = self._ask(list_services="").list_services_response.service
        return [service.name for service in listed]

    def call(self, service: str, method: str, document: dict[str, Any]) -> dict[str, Any]:
        self._learn(self._ask(file_containing_symbol=service))
        described = self._pool.FindServiceByName(service).methods_by_name[method]
        request = message_factory.GetMessageClass(described.input_type)
        response = message_factory.GetMessageClass(described.output_type)
        invoke = self._channel.unary_unary(
            f"/{service}/{method}",
            request_serializer=request.SerializeToString,
            response_deserializer=response.FromString,
        )
        answer: dict[str, Any] = json_format.MessageToDict(
            invoke(json_format.ParseDict(document, request())), preserving_proto_field_name=True
        )
        return answer

    def _ask(self, **question: str) -> Any:
        (answer,) = self._reflection.ServerReflectionInfo(
            iter([reflection_pb2.ServerReflectionRequest(**question)])
        )
        return answer

    def _learn(self, answer: Any) -> None:
        for octets in answer.file_descriptor_response.file_descriptor_proto:
            file = descriptor_pb2.FileDescriptorProto.FromString(octets)
            for dependency in file.dependency:
                self._learn(self._ask(file_by_filename=dependency))
            self._pool.Add(file)


def test_a_client_that_knows_nothing_but_the_address_can_call(channel: Any, topic: str) -> None:
    service = ReflectedService(channel)

    names = service.services()
    sent = service.call("penstock.v1.Penstock", "Publish", {"topic": topic, "value": "aGk=", "partition": 0})
    received = service.call(
        "penstock.v1.Penstock", "Poll", {"group": "reflected", "topics": [topic], "wait_ms": 10_000}
    )

    assert {"penstock.v1.Penstock", "grpc.health.v1.Health"} <= set(names)
    assert sent["id"] == f"{topic}/0/0"
    assert [message["value"] for message in received["messages"]] == ["aGk="]


@pytest.mark.parametrize("service", ["", "penstock.v1.Penstock"])
def test_health_is_that_of_the_node(channel: Any, service: str) -> None:
    stub = health_pb2_grpc.HealthStub(channel)

    answer = stub.Check(health_pb2.HealthCheckRequest(service=service))

    assert answer.status == health_pb2.HealthCheckResponse.SERVING


def raw_call(channel: Any, method: str, octets: bytes) -> Any:
    return channel.unary_unary(f"/penstock.v1.Penstock/{method}")(octets, timeout=10)


@pytest.mark.parametrize("octets", [b"\xff", b"\x0a\xff\xff\xff\xff\x0f", b"\x0a\x02\xc3\x28"], ids=repr)
def test_bytes_that_are_no_message_get_one_error(
    channel: Any, penstock: Any, topic: str, octets: bytes
) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        raw_call(channel, "Publish", octets)

    assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert "PublishRequest" in refused.value.details()
    assert penstock.Publish(PublishRequest(topic=topic, value=b"after")).offset == 0


def test_bytes_that_are_no_message_end_a_stream(channel: Any, topic: str) -> None:
    call = channel.stream_stream("/penstock.v1.Penstock/PublishStream")
    requests = [PublishRequest(topic=topic, value=b"before").SerializeToString(), b"\xff"]

    stream = call(iter(requests), timeout=10)

    assert PublishResponse.FromString(next(stream)).offset == 0
    with pytest.raises(grpc.RpcError) as refused:
        next(stream)
    assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT


def test_a_call_that_does_not_exist_is_unimplemented(channel: Any) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        raw_call(channel, "Fly", b"")

    assert refused.value.code() == grpc.StatusCode.UNIMPLEMENTED


def test_a_connection_that_speaks_no_http_ends_alone(server: ServerThread, penstock: Any, topic: str) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as stranger:
        stranger.sendall(b"\x00\x01\x02 hello, is this Kafka?\r\n\r\n" * 100)
        while stranger.recv(4096):
            pass

    assert penstock.Publish(PublishRequest(topic=topic, value=b"after")).offset == 0


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])


def is_closed(connection: socket.socket) -> bool:
    """Whether the server has closed it; what it says before is of no interest."""
    try:
        while connection.recv(4_096):
            pass
    except BlockingIOError:
        return False
    except ConnectionError:
        pass
    return True


@pytest.mark.parametrize("said", [b"", PREFACE], ids=["nothing", "hello"])
def test_connections_that_ask_for_nothing_are_few_and_end(node: Broker, topic: str, said: bytes) -> None:
    small = ServerThread(node, GrpcOptions(connections_max=20, handshake_ms=1_000, idle_ms=1_000))
    small.open()
    try:
        with ExitStack() as opened:
            strangers = []
            for _ in range(40):
                stranger = opened.enter_context(
                    socket.create_connection(("127.0.0.1", small.port), timeout=30)
                )
                strangers.append(stranger)
                with suppress(ConnectionError):
                    stranger.sendall(said)
                stranger.setblocking(False)
            until(lambda: all(map(is_closed, strangers)), "they are closed")
        with grpc.insecure_channel(f"127.0.0.1:{small.port}") as channel:
            stub = PenstockStub(channel)  # type: ignore[no-untyped-call]
            stored = stub.Publish(PublishRequest(topic=topic, value=b"x"), timeout=30, wait_for_ready=True)
    finally:
        small.close()

    assert stored.offset == 0


def test_a_request_that_there_is_no_room_for_may_be_sent_again(node: Broker, topic: str) -> None:
    small = ServerThread(node, rest=RestOptions(in_flight_bytes_max=1_000))
    small.open()
    try:
        with grpc.insecure_channel(f"127.0.0.1:{small.port}") as channel:
            stub = PenstockStub(channel)  # type: ignore[no-untyped-call]
            with pytest.raises(grpc.RpcError) as refused:
                stub.Publish(PublishRequest(topic=topic, value=bytes(1_000)))
            stored = stub.Publish(PublishRequest(topic=topic, value=bytes(800)))
    finally:
        small.close()

    assert refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "rest.in_flight_bytes_max" in refused.value.details()
    assert ("grpc-retry-pushback-ms", "1000") in refused.value.trailing_metadata()
    assert stored.offset == 0


TOO_LONG = "x" * 300_000


@pytest.mark.parametrize(
    ("method", "request_"),
    [
        ("CreateTopic", CreateTopicRequest(name=TOO_LONG)),
        ("DeleteTopic", DeleteTopicRequest(name=TOO_LONG)),
        ("Publish", PublishRequest(topic=TOO_LONG)),
        ("PublishBatch", PublishBatchRequest(topic=TOO_LONG, messages=[OutgoingMessage()])),
        ("Poll", PollRequest(group="g", topics=[TOO_LONG])),
        ("Poll", PollRequest(group="g", topics=["t"], consumer=TOO_LONG)),
        ("GetMessage", GetMessageRequest(id=f"{TOO_LONG}/0/0")),
        ("Nack", NackRequest(group="g", receipts=["r"], reason=TOO_LONG)),
        ("Commit", CommitRequest(group="g", offsets=[Position(topic=TOO_LONG, offset=1)])),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_names_that_are_too_long_are_refused_before_anybody_is_asked(
    penstock: Any, method: str, request_: Any
) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        getattr(penstock, method)(request_, timeout=10)

    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "characters, and 2" in refused.value.details()


def test_a_subscription_with_a_name_that_is_too_long_is_refused(penstock: Any) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        next(penstock.Subscribe(SubscribeRequest(topics=[TOO_LONG]), timeout=10))

    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "characters, and 2" in refused.value.details()


def test_topics_of_one_call_are_limited_and_one_that_is_named_twice_counts_once(
    penstock: Any, topic: str
) -> None:
    penstock.Publish(PublishRequest(topic=topic, value=b"x"), timeout=10)
    with pytest.raises(grpc.RpcError) as refused:
        next(penstock.Subscribe(SubscribeRequest(topics=[topic] * 101), timeout=10))

    twice = penstock.Subscribe(SubscribeRequest(topics=[topic] * 2, start=START_EARLIEST), timeout=10)
    found = next(twice)
    twice.cancel()

    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "more than 100" in refused.value.details()
    assert found.value == b"x"


def silence(end: threading.Event) -> Iterator[bytes]:
    """No message, until the end."""
    end.wait()
    yield from ()


@pytest.mark.parametrize("method", ["Publish", "PublishStream"])
def test_calls_that_wait_for_messages_end_when_the_process_has_grown_too_much(
    node: Broker, method: str
) -> None:
    # What earlier tests have left in this process is not to be given back in place of what is held here.
    gc.collect()
    give_back()
    small = ServerThread(node, rest=RestOptions(in_flight_bytes_max=1 << 20))
    small.open()
    never = threading.Event()
    try:
        with grpc.insecure_channel(f"127.0.0.1:{small.port}") as channel, ExitStack() as opened:
            opened.callback(never.set)
            waiting = channel.stream_stream(f"/penstock.v1.Penstock/{method}")(silence(never), timeout=60)
            # The server is in this process.
            ballast = b"x" * (64 << 20)
            with pytest.raises(grpc.RpcError) as refused:
                next(waiting)
            del ballast
    finally:
        small.close()

    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_calls_whose_message_does_not_come_leave_room_for_others(node: Broker, topic: str) -> None:
    small = ServerThread(node, GrpcOptions(calls_max=20))
    small.open()
    never = threading.Event()

    def is_served(stub: Any) -> bool:
        with suppress(grpc.RpcError):
            return bool(stub.Publish(PublishRequest(topic=topic, value=b"x"), timeout=30).offset >= 0)
        return False

    try:
        with ExitStack() as opened:
            opened.callback(never.set)
            address = f"127.0.0.1:{small.port}"
            other = opened.enter_context(grpc.insecure_channel(address))
            stub = PenstockStub(other)  # type: ignore[no-untyped-call]
            channel = opened.enter_context(grpc.insecure_channel(address))
            call = channel.stream_unary("/penstock.v1.Penstock/Publish")
            silent = [call.future(silence(never)) for _ in range(40)]
            until(lambda: any(each.done() for each in silent), "all places are taken")
            until(lambda: is_served(stub), "one of them makes room")
    finally:
        small.close()
