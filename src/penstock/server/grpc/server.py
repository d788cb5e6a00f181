"""The gRPC port: the service, reflection and health on one grpc.aio server."""

import asyncio
from contextlib import suppress
from typing import Any

import grpc
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from penstock.observability import log
from penstock.runtime.descriptors import present_limits
from penstock.server.gateway.backend import GatewayBackend
from penstock.server.grpc.callers import CallerServices, server_credentials
from penstock.server.grpc.calls import CallGate, IncomingMessages
from penstock.server.grpc.gate import StrangersGate
from penstock.server.grpc.message_memory import MessageMemory
from penstock.server.grpc.options import GrpcOptions
from penstock.server.grpc.service import PenstockService
from penstock.server.grpc.statuses import decoder
from penstock.v1 import penstock_pb2

DESCRIPTOR = penstock_pb2.DESCRIPTOR.services_by_name["Penstock"]
SERVICE = DESCRIPTOR.full_name
READINESS_SECONDS = 1.0
KEEPALIVE_MS = 60_000
KEEPALIVE_TIMEOUT_MS = 20_000
HTTP_OK = 200


class GrpcServer:
    """Serves `penstock.v1.Penstock` at one address."""

    def __init__(self, backend: GatewayBackend, options: GrpcOptions) -> None:
        self._backend = backend
        self._options = options
        self._server: Any = None
        self._health = health.aio.HealthServicer()
        self._watches: tuple[asyncio.Task[None], ...] = ()
        self._tasks = asyncio.TaskGroup()

    async def open(self) -> int:
        """Accept calls from now on; returns the port. Raises OSError if the address cannot be had."""
        assert self._backend.options.grpc is not None
        options, callers = self._options, self._backend.callers
        messages = IncomingMessages()
        memory = MessageMemory(messages, self._backend.memory)
        interceptors: list[Any] = [CallGate(messages, options.calls_max)]
        if callers is not None:
            interceptors.append(StrangersGate(callers, messages, options.calls_max))
        self._server = grpc.aio.server(
            maximum_concurrent_rpcs=options.calls_max,
            interceptors=interceptors,
            options=[
                ("grpc.max_receive_message_length", options.message_bytes_max),
                ("grpc.max_send_message_length", -1),
                # What is read of a message that nobody waits for yet.
                ("grpc.http2.bdp_probe", 0),
                ("grpc.max_concurrent_streams", options.connection_calls_max),
                # Two servers on one port would share its connections.
                ("grpc.so_reuseport", 0),
                # Silence costs its sender nothing, and a descriptor here.
                ("grpc.max_allowed_incoming_connections", _connections_max(options)),
                ("grpc.server_handshake_timeout_ms", options.handshake_ms),
                ("grpc.max_connection_idle_ms", options.idle_ms),
                # A client that is gone without a word is noticed, and its leases are released.
                ("grpc.keepalive_time_ms", KEEPALIVE_MS),
                ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
            ],
        )
        service: Any = PenstockService(self._backend, options)
        if callers is not None:
            service = CallerServices(callers, options)
        elements_max = max(options.batch_max, options.receipts_max)
        self._server.add_generic_rpc_handlers((_handlers(service, elements_max),))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        reflection.enable_server_reflection(
            (SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME), self._server
        )
        host, port = self._backend.options.grpc
        try:
            place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            if self._backend.options.tls is None:
                port = self._server.add_insecure_port(place)
            else:
                port = self._server.add_secure_port(place, server_credentials(self._backend.options.tls))
        except RuntimeError as error:
            raise OSError(f"gRPC cannot listen at {host}:{port}") from error
        await self._follow_readiness()
        await self._server.start()
        await self._tasks.__aenter__()
        self._watches = (
            self._tasks.create_task(self._watch_readiness()),
            self._tasks.create_task(memory.watch()),
        )
        log.info("grpc.listening", host=host, port=port)
        return int(port)

    async def close(self) -> None:
        """Accept nothing more, let calls end that are under way, and close every connection."""
        if not self._watches:
            return
        for watch in self._watches:
            watch.cancel()
        await self._tasks.__aexit__(None, None, None)
        await self._health.enter_graceful_shutdown()
        await self._server.stop(self._options.close_seconds)

    async def _watch_readiness(self) -> None:
        with suppress(asyncio.CancelledError):
            while True:
                await asyncio.sleep(READINESS_SECONDS)
                await self._follow_readiness()

    async def _follow_readiness(self) -> None:
        try:
            is_ready = (await self._backend.pages.get("/ready")).status == HTTP_OK
        except OSError:
            is_ready = False
        statuses = health_pb2.HealthCheckResponse
        status = statuses.SERVING if is_ready else statuses.NOT_SERVING
        for name in ("", SERVICE):
            await self._health.set(name, status)


def _connections_max(options: GrpcOptions) -> int:
    """Not more than half of the descriptors that the process may have."""
    return min(options.connections_max, present_limits().limit // 2)


def _handlers(service: Any, elements_max: int) -> Any:
    """The calls of the .proto. The generated registration would leave malformed requests to gRPC."""
    kinds = {
        (False, False): grpc.unary_unary_rpc_method_handler,
        (False, True): grpc.unary_stream_rpc_method_handler,
        (True, True): grpc.stream_stream_rpc_method_handler,
    }
    return grpc.method_handlers_generic_handler(
        SERVICE,
        {
            method.name: kinds[method.client_streaming, method.server_streaming](
                getattr(service, method.name),
                request_deserializer=decoder(GetMessageClass(method.input_type), elements_max),
                response_serializer=GetMessageClass(method.output_type).SerializeToString,
            )
            for method in DESCRIPTOR.methods
        },
    )
