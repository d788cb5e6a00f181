"""Config resources as requests name them, and who may describe or change them."""

from typing import NamedTuple

from penstock.core.metadata import ConfigResource, ConfigResourceType
from penstock.core.model import ApiError
from penstock.core.protocol import ErrorCode
from penstock.security import AclOperation, Resource
from penstock.security import ResourceType as GuardedKind
from penstock.server.kafka.errors import code_of, message_of
from penstock.server.kafka.request import Request
from penstock.server.kafka.response_rows import CLUSTER

# Kafka's number for the log levels of one broker.
BROKER_LOGGER = 8


class ConfigResult(NamedTuple):
    """An error code and its message."""

    code: ErrorCode
    message: str | None


FINE = ConfigResult(ErrorCode.NONE, None)
DUPLICATE = ConfigResult(ErrorCode.INVALID_REQUEST, "each resource may appear once in a request")
_GUARDS = {
    ConfigResourceType.TOPIC: (GuardedKind.TOPIC, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ConfigResourceType.GROUP: (GuardedKind.GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED),
}


def configurable(
    call: Request, operation: AclOperation, kind: int, name: str
) -> ConfigResource | ConfigResult:
    """The resource, if there is such a kind and the caller may do this to it."""
    try:
        resource = ConfigResource(ConfigResourceType(kind), name)
    except ValueError:
        return ConfigResult(ErrorCode.INVALID_REQUEST, _unknown(kind))
    guard = _GUARDS.get(resource.kind)
    if guard is None:
        allowed, code = call.authorize(operation, CLUSTER), ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    else:
        allowed, code = call.authorize(operation, Resource(guard[0], name)), guard[1]
    return (
        resource if allowed else ConfigResult(code, f"the caller may not {operation.value} of this resource")
    )


def _unknown(kind: int) -> str:
    if kind == BROKER_LOGGER:
        return "log levels cannot be changed by clients; set them in the node's configuration"
    return f"unknown config resource type {kind}"


def error_outcome(error: ApiError) -> ConfigResult:
    return ConfigResult(code_of(error), message_of(error))


def as_outcome(reply: object) -> ConfigResult:
    """The result of a change."""
    return error_outcome(reply) if isinstance(reply, ApiError) else FINE
