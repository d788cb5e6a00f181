"""Every gRPC method, for nobody, a user without rights, with them, with all but one, and a super user."""

import itertools
from collections.abc import Callable
from typing import Any, Final

import grpc
import pytest
from google.protobuf.empty_pb2 import Empty

from penstock.server.gateway.permissions import GRPC, IDENTITY
from penstock.v1 import penstock_pb2 as proto
from penstock.v1 import penstock_pb2_grpc
from tests.integration.security_gateway.conftest import RightsMatrix, SecuredGateway

STUB: Any = penstock_pb2_grpc.PenstockStub
TOPIC, GROUP = "grpc-matrix", "grpc-matrix"
# What tells a caller that it may not.
OK = grpc.StatusCode.OK
UNKNOWN, DENIED = grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED
MINUTE_MS = 60_000
POLLS_MAX = 20
# Metadata of the super user, who prepares what others are to settle.
ADMIN: list[tuple[str, str]] = []
NUMBERS = itertools.count()

Call = Callable[[Any, list[tuple[str, str]] | None], set[Any]]


def unary(method: str, request: Any) -> Call:
    """A call with one response, whose parts may have statuses of their own."""

    def made(stub: Any, metadata: Any) -> set[Any]:
        return statuses_in(getattr(stub, method)(request, metadata=metadata, timeout=30))

    return made


def statuses_in(response: Any) -> set[Any]:
    """The statuses of a response that is made of others."""
    parts = list(getattr(response, "results", ())) or [response]
    errors = [part.error.status for part in parts if hasattr(part, "error") and part.HasField("error")]
    by_number = {code.value[0]: code for code in grpc.StatusCode}
    return {by_number[number] for number in errors} or {grpc.StatusCode.OK}


def publish_stream(stub: Any, metadata: Any) -> set[Any]:
    request = proto.PublishRequest(topic=TOPIC, value=b"x")
    responses = list(stub.PublishStream(iter([request]), metadata=metadata, timeout=30))
    return set().union(*map(statuses_in, responses))


def settle(method: str, kind: Any) -> Call:
    """Settle a receipt that somebody else has got."""

    def made(stub: Any, metadata: Any) -> set[Any]:
        for _ in range(POLLS_MAX):
            stub.Publish(proto.PublishRequest(topic=TOPIC, value=b"x"), metadata=ADMIN, timeout=30)
            request = proto.PollRequest(group=GROUP, topics=[TOPIC], max=1)
            if messages := stub.Poll(request, metadata=ADMIN, timeout=30).messages:
                break
        receipts = [message.receipt for message in messages]
        return unary(method, kind(group=GROUP, receipts=receipts))(stub, metadata)

    return made


def subscribe(stub: Any, metadata: Any) -> set[Any]:
    """A stream has its start, and may yet be refused with its first message."""
    request = proto.SubscribeRequest(topics=[TOPIC], group=GROUP, mode=proto.MODE_QUEUE)
    stream = stub.Subscribe(request, metadata=metadata, timeout=3)
    try:
        next(stream)
    except grpc.RpcError as error:
        if error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
            raise
    finally:
        stream.cancel()
    return {grpc.StatusCode.OK}


def create_topic(stub: Any, metadata: Any) -> set[Any]:
    request = proto.CreateTopicRequest(name=f"{TOPIC}-{next(NUMBERS)}")
    return unary("CreateTopic", request)(stub, metadata)


def get_message(stub: Any, metadata: Any) -> set[Any]:
    """A message that is there."""
    made = stub.Publish(proto.PublishRequest(topic=TOPIC, value=b"x"), metadata=ADMIN, timeout=30)
    request = proto.GetMessageRequest(id=made.id)
    return unary("GetMessage", request)(stub, metadata)


CALLS: Final[dict[str, Call]] = {
    "CreateTopic": create_topic,
    "DeleteTopic": unary("DeleteTopic", proto.DeleteTopicRequest(name=TOPIC)),
    "ListTopics": unary("ListTopics", Empty()),
    "Publish": unary("Publish", proto.PublishRequest(topic=TOPIC, value=b"x")),
    "PublishBatch": unary(
        "PublishBatch",
        proto.PublishBatchRequest(topic=TOPIC, messages=[proto.OutgoingMessage(value=b"x")]),
    ),
    "PublishStream": publish_stream,
    "Subscribe": subscribe,
    "Poll": unary("Poll", proto.PollRequest(group=GROUP, topics=[TOPIC])),
    "GetMessage": get_message,
    "Ack": settle("Ack", proto.AckRequest),
    "Nack": settle("Nack", proto.NackRequest),
    "Renew": settle("Renew", proto.RenewRequest),
    "Commit": unary(
        "Commit",
        proto.CommitRequest(group="grpc-commits", offsets=[proto.Position(topic=TOPIC, offset=0)]),
    ),
}
# What is refused by a response that says the same of what is not there.
HIDDEN: Final = {"CancelDelays"}
NAMES: Final = {"topic": TOPIC, "group": "grpc-"}


@pytest.fixture(scope="module")
def matrix(secured_gateway: SecuredGateway) -> RightsMatrix:
    made = RightsMatrix(secured_gateway, "grpc", NAMES)
    made.create_topic(TOPIC)
    ADMIN[:] = bearer(made.admins_key)
    return made


def bearer(key: str) -> list[tuple[str, str]]:
    return [("authorization", f"Bearer {key}")]


def outcome(gate: SecuredGateway, method: str, key: str | None) -> set[Any]:
    """The statuses that the caller gets."""
    metadata = None if key is None else bearer(key)
    with gate.channel() as channel:
        try:
            return CALLS[method](STUB(channel), metadata)
        except grpc.RpcError as error:
            return {error.code()}


def test_every_method_is_called_by_these_tests() -> None:
    assert CALLS.keys() | HIDDEN == GRPC.keys()


@pytest.mark.parametrize("method", list(GRPC))
@pytest.mark.usefixtures("matrix")
def test_a_method_is_not_for_nobody(secured_gateway: SecuredGateway, method: str) -> None:
    if method in HIDDEN:
        with secured_gateway.channel() as channel, pytest.raises(grpc.RpcError) as refused:
            STUB(channel).CancelDelays(proto.CancelDelaysRequest(delay_ids=["0-1"]), timeout=30)
        assert refused.value.code() is UNKNOWN
    else:
        assert outcome(secured_gateway, method, None) == {UNKNOWN}


@pytest.mark.parametrize("method", [each for each in GRPC if each not in HIDDEN])
def test_a_method_is_for_those_who_have_its_rights(
    secured_gateway: SecuredGateway, matrix: RightsMatrix, method: str
) -> None:
    needs = GRPC[method]
    without = outcome(secured_gateway, method, matrix.nobodys_key)
    if needs == IDENTITY:
        assert without == {OK}
    else:
        assert without == {DENIED}
        assert outcome(secured_gateway, method, matrix.key_elsewhere(needs)) == {DENIED}
        for key in matrix.keys_lacking_one(needs):
            assert outcome(secured_gateway, method, key) == {DENIED}
        assert outcome(secured_gateway, method, matrix.key_with(needs)) == {OK}
        matrix.create_topic(TOPIC)
    assert outcome(secured_gateway, method, matrix.admins_key) == {OK}
    matrix.create_topic(TOPIC)


def test_a_delay_is_cancelled_by_those_who_may_write_to_its_topic(
    secured_gateway: SecuredGateway, matrix: RightsMatrix
) -> None:
    needs = GRPC["CancelDelays"]
    later = proto.PublishRequest(topic=TOPIC, value=b"x", delay_ms=60 * MINUTE_MS)

    def cancel(key: str, *ids: str) -> list[bool]:
        request = proto.CancelDelaysRequest(delay_ids=ids)
        return list(stub.CancelDelays(request, metadata=bearer(key), timeout=30).cancelled)

    with secured_gateway.channel() as channel:
        stub = STUB(channel)
        metadata = bearer(matrix.admins_key)
        first, second = (stub.Publish(later, metadata=metadata, timeout=30).delay_id for _ in range(2))
        assert cancel(matrix.nobodys_key, first, second) == [False, False]
        assert cancel(matrix.key_elsewhere(needs), first, second) == [False, False]
        assert cancel(matrix.key_with(needs), first) == [True]
        assert cancel(matrix.admins_key, first, second) == [False, True]


def test_reflection_is_for_somebody_and_health_for_everybody(
    secured_gateway: SecuredGateway, matrix: RightsMatrix
) -> None:
    from grpc_health.v1 import health_pb2, health_pb2_grpc
    from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

    asked = reflection_pb2.ServerReflectionRequest(list_services="")
    with secured_gateway.channel() as channel:
        status = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=30)
        assert status.status == health_pb2.HealthCheckResponse.SERVING
        reflection = reflection_pb2_grpc.ServerReflectionStub(channel)
        with pytest.raises(grpc.RpcError) as refused:
            next(reflection.ServerReflectionInfo(iter([asked]), timeout=30))
        assert refused.value.code() is UNKNOWN
        metadata = bearer(matrix.nobodys_key)
        answer = next(reflection.ServerReflectionInfo(iter([asked]), metadata=metadata, timeout=30))
        names = [each.name for each in answer.list_services_response.service]
        assert "penstock.v1.Penstock" in names
