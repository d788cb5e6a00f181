"""Who calls the gRPC server: metadata of a call as headers of HTTP, or the certificate of its connection."""

import asyncio
import functools
import ssl
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from weakref import WeakKeyDictionary

import grpc

from penstock.client.cluster import ClusterError
from penstock.core.protocol import ErrorCode
from penstock.observability import log
from penstock.security.private_files import read_private
from penstock.server.gateway.callers import Caller, Callers, Credentials, UnknownCaller, credentials_of
from penstock.server.gateway.options import GatewayTls
from penstock.server.grpc.options import GrpcOptions
from penstock.server.grpc.service import PenstockService
from penstock.server.grpc.statuses import grpc_status
from penstock.v1 import penstock_pb2

KEY_BYTES_MAX = 1 << 16
DESCRIPTOR = penstock_pb2.DESCRIPTOR.services_by_name["Penstock"]
WHO = "say who you are: an API key, a token, or a user and a password"
# What the names of its calls begin with.
PENSTOCK = f"/{DESCRIPTOR.full_name}/"


def credentials(context: Any) -> Credentials:
    """What a call says about its caller."""
    pairs = [
        (key.encode(), value.encode() if isinstance(value, str) else value)
        for key, value in context.invocation_metadata() or ()
    ]
    return credentials_of(pairs, host_of(context), _certificate(context), "gRPC")


def host_of(context: Any) -> str:
    """The address in `ipv4:1.2.3.4:5` or `ipv6:[::1]:5`; there is nothing else to be known of who calls."""
    peer: str = context.peer()
    return unquote(peer.partition(":")[2]).rpartition(":")[0].strip("[]")


def _certificate(context: Any) -> bytes | None:
    found = (context.auth_context() or {}).get("x509_pem_cert")
    return ssl.PEM_cert_to_DER_cert(found[0].decode()) if found else None


class CallerServices:
    """The calls of the .proto, each served by what its caller has."""

    def __init__(self, callers: Callers, options: GrpcOptions) -> None:
        self._callers = callers
        self._options = options
        self._services: WeakKeyDictionary[Caller, PenstockService] = WeakKeyDictionary()
        for method in DESCRIPTOR.methods:
            setattr(self, method.name, functools.partial(self._call, method.name))

    async def _call(self, name: str, request: Any, context: Any) -> Any:
        caller = await identify(self._callers, context)
        service = self._services.get(caller)
        if service is None:
            service = self._services[caller] = PenstockService(caller.backend, self._options)
        caller.uses += 1
        try:
            return await unless_ended(caller, getattr(service, name)(request, context), context)
        finally:
            caller.uses -= 1


async def identify(callers: Callers, context: Any) -> Caller:
    """The caller; the call is aborted if it is nobody."""
    try:
        given = credentials(context)
        return callers.find(given) or await callers.identify(given)
    except UnknownCaller:
        challenge = (("www-authenticate", "Bearer"),)
        await context.abort(grpc.StatusCode.UNAUTHENTICATED, WHO, challenge)
    except ClusterError as error:
        await context.abort(grpc_status(error), f"{ErrorCode(error.code).name}: {error.detail}")
    raise AssertionError("the call was aborted")


async def unless_ended(caller: Caller, work: Coroutine[Any, Any, Any], context: Any) -> Any:
    """What the call returns; it ends when its caller is nobody any more."""
    loop = asyncio.get_running_loop()
    call, ended = loop.create_task(work), loop.create_task(caller.ended.wait())
    try:
        await asyncio.wait((call, ended), return_when=asyncio.FIRST_COMPLETED)
    finally:
        ended.cancel()
        if not call.done():
            call.cancel()
            with suppress(asyncio.CancelledError, grpc.aio.AbortError):
                await call
    if call.cancelled():
        await context.abort(grpc.StatusCode.UNAUTHENTICATED, WHO)
    return call.result()


def server_credentials(tls: GatewayTls) -> Any:
    """The certificate of the port, read again when its files change; clients' are asked for if they need one.

    gRPC can demand a certificate or not ask for one, so that with `client_auth: want` it does not ask.
    The lowest version of TLS is set by the process (`gateway.process`), before gRPC is imported.
    """
    is_needed = tls.client_auth == "need"
    read = _configuration(tls, is_needed)
    stamp = _stamp(tls)

    def fetch() -> Any:
        nonlocal stamp, read
        now = _stamp(tls)
        if now == stamp:
            return None
        try:
            read, stamp = _configuration(tls, is_needed), now
        except Exception as error:
            # gRPC's own thread: what cannot be read now may be readable in a moment.
            log.error("tls.certificate_refused", reason=str(error))
            return None
        return read

    return grpc.dynamic_ssl_server_credentials(read, fetch, require_client_authentication=is_needed)


def _configuration(tls: GatewayTls, is_needed: bool) -> Any:
    pair = read_private(tls.key, KEY_BYTES_MAX), Path(tls.certificate).read_bytes()
    roots = Path(tls.authority).read_bytes() if is_needed and tls.authority else None
    return grpc.ssl_server_certificate_configuration([pair], root_certificates=roots)


def _stamp(tls: GatewayTls) -> tuple[int, ...]:
    paths = [path for path in (tls.certificate, tls.key, tls.authority) if path]
    return tuple(Path(path).stat().st_mtime_ns if Path(path).exists() else 0 for path in paths)
