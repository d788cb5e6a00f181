"""Errors as statuses: one status with a sentence for every call that fails."""

import functools
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NamedTuple

import grpc
from google.protobuf.message import DecodeError, Message

from penstock.client.cluster import ClusterError, QuotaExceeded
from penstock.core.metadata.topic_names import NAME_LENGTH_MAX
from penstock.core.protocol import ErrorCode
from penstock.observability import log
from penstock.server.gateway.errors import status_of
from penstock.server.gateway.memory import RETRY_AFTER_SECONDS, MemoryShare, MemoryUsedUp
from penstock.server.grpc.elements import ElementLimits

Method = Callable[[Any, Any, Any], Awaitable[Any]]


class Malformed(NamedTuple):
    """Stands for a request that is no message of its type."""

    detail: str


def invalid(detail: str) -> ClusterError:
    """A request that cannot be carried out as it is."""
    return ClusterError(ErrorCode.INVALID_REQUEST, detail)


def check_name(field: str, name: str, chars_max: int) -> None:
    """A longer name is nobody's, and would only be carried around."""
    if len(name) > chars_max:
        raise invalid(f"{field}: has {len(name)} characters, and {chars_max} at most")


def check_topics(field: str, names: Iterable[str]) -> None:
    """As `check_name`, of topics."""
    for name in names:
        check_name(field, name, NAME_LENGTH_MAX)


def grpc_status(error: ClusterError) -> Any:
    """The `grpc.StatusCode` of an error."""
    return grpc.StatusCode[status_of(error.code).grpc]


def decoder(message: Any, elements_max: int) -> Callable[[bytes], Any]:
    """How requests of this type are read. What raises here gets a status of gRPC's own, and a traceback."""
    limits = ElementLimits(message.DESCRIPTOR, elements_max)

    def decode(octets: bytes) -> Any:
        if (problem := limits.problem_with(octets)) is not None:
            return Malformed(problem)
        try:
            return message.FromString(octets)
        except DecodeError as error:
            return Malformed(str(error))

    return decode


def checked(request: Any) -> Any:
    """A request as it is, unless it is malformed."""
    if isinstance(request, Malformed):
        raise invalid(request.detail)
    return request


def _is_of_the_call(error: Exception) -> bool:
    """Whether gRPC could not read or write: nobody is at the other end any more."""
    if isinstance(error, ExceptionGroup):
        return all(map(_is_of_the_call, error.exceptions))
    return isinstance(error, grpc.aio.InternalError)


async def _try_later(context: Any, detail: str, seconds: float) -> None:
    pushback = (("grpc-retry-pushback-ms", str(int(seconds * 1_000))),)
    await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, detail, pushback)


async def _end(context: Any, call: str, error: Exception) -> None:
    """The last line of defence: a bug ends the call, and the others go on."""
    if context.cancelled() or _is_of_the_call(error):
        # What was under way failed because the client is gone: it left, or its time is over.
        return
    log.error("grpc.call_failed", call=call, error=repr(error))
    await context.abort(grpc.StatusCode.INTERNAL, "the call failed; the server's log says why")


def with_status(method: Method) -> Method:
    """A call whose errors end it with their status; its request counts until then."""

    @functools.wraps(method)
    async def call(service: Any, request: Any, context: Any) -> Any:
        memory = MemoryShare(service.memory)
        try:
            if isinstance(request, Message):
                memory.take(request.ByteSize())
            service.check_quota()
            return await method(service, checked(request), context)
        except MemoryUsedUp as error:
            await _try_later(context, str(error), RETRY_AFTER_SECONDS)
        except QuotaExceeded as error:
            await _try_later(context, error.detail, error.seconds)
        except ClusterError as error:
            await context.abort(grpc_status(error), f"{error.code.name}: {error.detail}")
        except (grpc.aio.AbortError, grpc.aio.UsageError):
            raise
        except Exception as error:
            await _end(context, method.__name__, error)
        finally:
            memory.end()

    return call
