"""Those who are nobody leave room for others at the gRPC port, whatever they open there."""

import asyncio
from collections.abc import Callable
from typing import Any

import grpc
import pytest
from google.protobuf.empty_pb2 import Empty
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from penstock.server.grpc.options import GrpcOptions
from penstock.v1 import penstock_pb2_grpc
from tests.integration.security_gateway.conftest import SecuredGateway

STUB: Any = penstock_pb2_grpc.PenstockStub
OK, UNKNOWN = grpc.StatusCode.OK, grpc.StatusCode.UNAUTHENTICATED
SERVING = health_pb2.HealthCheckResponse.SERVING
CALLS = GrpcOptions().calls_max // 2 + 100
CONNECTIONS = 2
LIST, CHECK = "/penstock.v1.Penstock/ListTopics", "/grpc.health.v1.Health/Check"
WRONG = [("authorization", "Bearer pk_wrongwrong_" + "x" * 40)]
# As long as a Check may take, and a failed login.
PATIENCE_SECONDS = 30


def bearer(key: str) -> list[tuple[str, str]]:
    return [("authorization", f"Bearer {key}")]


def watch(channel: Any) -> Any:
    return health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())


def wrong(channel: Any) -> Any:
    return STUB(channel).ListTopics(Empty(), metadata=WRONG)


def silent(channel: Any) -> Any:
    """A call that has begun, and whose message never comes."""
    return channel.stream_unary(LIST)()


def silent_and_wrong(channel: Any) -> Any:
    return channel.stream_unary(LIST)(metadata=WRONG)


def silent_check(channel: Any) -> Any:
    return channel.stream_unary(CHECK)()


async def status_of(channel: Any, key: str) -> Any:
    try:
        await STUB(channel).ListTopics(Empty(), metadata=bearer(key), timeout=20)
    except grpc.aio.AioRpcError as error:
        return error.code()
    return OK


async def beset(gate: SecuredGateway, key: str, begin: Callable[[Any], Any]) -> tuple[Any, set[Any]]:
    """What somebody gets while a stranger opens calls, and how those end."""
    known = grpc.aio.insecure_channel(gate.grpc)
    assert await status_of(known, key) is OK
    options = [("grpc.use_local_subchannel_pool", 1)]
    channels = [grpc.aio.insecure_channel(gate.grpc, options=options) for _ in range(CONNECTIONS)]
    calls = [begin(channel) for channel in channels for _ in range(CALLS)]
    async with asyncio.TaskGroup() as tasks:
        # Let all of them begin.
        codes = [tasks.create_task(call.code()) for call in calls]
        await asyncio.sleep(2)
        served = await status_of(known, key)
        async with asyncio.timeout(PATIENCE_SECONDS):
            await asyncio.wait(codes)
    for channel in (known, *channels):
        await channel.close()
    return served, {each.result() for each in codes}


@pytest.mark.parametrize("begin", [watch, silent, wrong, silent_and_wrong])
def test_calls_of_strangers_end_and_leave_room_for_others(
    secured_gateway: SecuredGateway, begin: Callable[[Any], Any]
) -> None:
    key = secured_gateway.key("admin")

    served, ends = asyncio.run(beset(secured_gateway, key, begin))

    assert served is OK
    assert OK not in ends


def test_checks_whose_message_does_not_come_end_and_leave_room_for_others(
    secured_gateway: SecuredGateway,
) -> None:
    key = secured_gateway.key("admin")

    served, ends = asyncio.run(beset(secured_gateway, key, silent_check))

    assert served is OK
    assert OK not in ends


def test_watching_health_and_reflection_are_for_somebody(secured_gateway: SecuredGateway) -> None:
    login = bearer(secured_gateway.key("admin"))
    asked = reflection_pb2.ServerReflectionRequest(list_services="")
    with secured_gateway.channel() as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        reflection: Any = reflection_pb2_grpc.ServerReflectionStub(channel)
        for call in (
            stub.Watch(health_pb2.HealthCheckRequest(), timeout=20),
            reflection.ServerReflectionInfo(iter([asked]), timeout=20),
            stub.Watch(health_pb2.HealthCheckRequest(), metadata=[*login, *login], timeout=20),
        ):
            with pytest.raises(grpc.RpcError) as refused:
                next(call)
            assert refused.value.code() is UNKNOWN
        assert stub.Check(health_pb2.HealthCheckRequest(), timeout=20).status == SERVING
        watched = stub.Watch(health_pb2.HealthCheckRequest(), metadata=login, timeout=20)
        assert next(watched).status == SERVING
        watched.cancel()
