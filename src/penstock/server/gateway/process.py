"""The main program of a gateway.

It ends with its node in two ways: the kernel sends SIGTERM when the node's thread that started it ends,
and the socket that both hold ends as well.
"""

import asyncio
import faulthandler
import gc
import os
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import uvloop

from penstock.observability import DescriptorSink, EventLogOptions, LogFormat, LogLevel, log
from penstock.runtime.heap import HeapTrimmer
from penstock.runtime.loop import MachineClock, freeze_garbage_collector
from penstock.server.gateway.backend import GatewayBackend
from penstock.server.gateway.options import GatewayOptions

if TYPE_CHECKING:
    from penstock.server.gateway.tls import GatewayCertificates
    from penstock.server.grpc.server import GrpcServer
    from penstock.server.http.rest_server import RestServer

CERTIFICATE_SECONDS = 2.0
# What the node is told once requests are served at every address, and again for as long as the loop turns.
SERVING = b"serving\n"
SIGNS_PER_TIMEOUT = 5
GRPC_RETRY_SECONDS = 1.0
# gRPC takes no version, but ciphers, which are those of TLS 1.2: 1.3 has its own. One that needs a key which
# both sides know in advance, and nobody has, leaves TLS 1.2 without any. gRPC reads it when it is imported.
NO_TLS_12 = "ECDHE-PSK-CHACHA20-POLY1305"


def main(arguments: Sequence[str]) -> int:
    """Serve until the node asks for the end, or ends itself."""
    options = msgspec.json.decode(arguments[0], type=GatewayOptions)
    token = sys.stdin.read()
    log.configure(
        EventLogOptions(
            LogLevel[options.log_level.upper()], LogFormat(options.log_format), {"node": options.node_id}
        ),
        DescriptorSink(sys.stderr.fileno()),
        MachineClock().wall,
    )
    # Ctrl-C on a terminal reaches the whole process group; the node decides what to do about it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A node that ends a gateway which hangs wants to know where it does.
    faulthandler.enable()
    # Before there are threads: each has a priority of its own, that of the one which started it.
    os.nice(options.nice)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(options, token))
    return 0


async def serve(options: GatewayOptions, token: str = "") -> None:
    """Open the servers, and close them when asked to; `token` is what the node knows us by."""
    # Here, and not above: the node imports this package for its options, and needs none of this.
    from penstock.server.http.app import rest_app
    from penstock.server.http.rest_server import RestServer

    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    node = socket.socket(fileno=options.node_descriptor)
    node.setblocking(False)
    loop.add_reader(node, _node_ended, node)
    certificates = None
    if options.tls is not None:
        from penstock.server.gateway.tls import GatewayCertificates

        certificates = GatewayCertificates(options.tls)
    tls = certificates if options.has_kafka_tls else None
    backend = GatewayBackend(options, token, tls, on_connect=partial(_announce, node))
    app = rest_app(backend)
    http = RestServer(app, options.rest, app, backend.memory)
    context = None if certificates is None else certificates.server_context
    await http.open(socket.socket(fileno=options.http_descriptor), context)
    grpc = _grpc_server(backend)
    is_open = grpc is None or await _open(grpc)
    # Looking for cycles among the records of large batches costs a fifth of what handling them does.
    freeze_garbage_collector()
    HeapTrimmer(loop, collect=gc.collect)
    async with asyncio.TaskGroup() as background:
        tasks = [background.create_task(_give_signs(node, options.hung_timeout_ms / 1_000))]
        if certificates is not None:
            tasks.append(background.create_task(_follow_certificates(certificates, http)))
        if grpc is not None and not is_open:
            tasks.append(background.create_task(_open_later(grpc)))
        await stop.wait()
        backend.stopping.set()
        for task in tasks:
            task.cancel()
    async with asyncio.TaskGroup() as closing:
        closing.create_task(http.close())
        if grpc is not None:
            closing.create_task(grpc.close())
    await backend.close()


async def _give_signs(node: socket.socket, timeout_seconds: float) -> None:
    """Tell the node that the loop turns."""
    while True:
        with suppress(OSError):
            # The node hangs itself and has enough to read, or is about to end us.
            node.send(SERVING)
        await asyncio.sleep(timeout_seconds / SIGNS_PER_TIMEOUT)


def _announce(node: socket.socket, port: int) -> None:
    """Tell the node that a connection from this port is ours."""
    with suppress(OSError):
        # Unless it listens no more, or has enough to read: then it is a connection as any other.
        node.send(b"%d\n" % port)


async def _follow_certificates(certificates: "GatewayCertificates", http: "RestServer") -> None:
    """Show new connections the certificate that is there; gRPC asks for it by itself."""
    while True:
        await asyncio.sleep(CERTIFICATE_SECONDS)
        if certificates.check():
            await http.replace_context(certificates.server_context)


def _grpc_server(backend: GatewayBackend) -> "GrpcServer | None":
    """The gRPC server if there is to be one; REST is served without it as well."""
    if backend.options.grpc is None:
        return None
    tls = backend.options.tls
    if tls is not None and tls.version_min == "1.3":
        os.environ["GRPC_SSL_CIPHER_SUITES"] = NO_TLS_12
    try:
        from penstock.server.grpc.server import GrpcServer
    except ModuleNotFoundError as missing:
        if missing.name is None or not missing.name.startswith("penstock.v1"):
            raise
        log.error("grpc.not_built", module=missing.name, command="python setup.py protos")
        return None
    return GrpcServer(backend, backend.options.grpc_limits)


async def _open(server: "GrpcServer") -> bool:
    try:
        await server.open()
    except OSError as error:
        log.error("grpc.not_listening", reason=str(error), retry_ms=round(GRPC_RETRY_SECONDS * 1_000))
        return False
    return True


async def _open_later(server: "GrpcServer") -> None:
    """Somebody else has the port, such as a gateway before us that has not ended quite: try again."""
    while True:
        await asyncio.sleep(GRPC_RETRY_SECONDS)
        with suppress(OSError):
            await server.open()
            return


def _node_ended(node: socket.socket) -> None:
    """The node never says anything: its end of the socket was closed."""
    if not node.recv(1):
        os._exit(1)
