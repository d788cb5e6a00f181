"""Config resources as requests name them, and who may describe or change them."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from penstock.core.metadata import ConfigResource, ConfigResourceType
from penstock.core.metadata.configs import VALUE_CHARS_MAX
from penstock.core.model import ApiError, ErrorKind
from penstock.core.protocol import ErrorCode
from penstock.security import AclOperation, Resource
from penstock.security import ResourceType as GuardedKind
from penstock.server.kafka.errors import code_of, message_of
from penstock.server.kafka.request import Request
from penstock.server.kafka.response_rows import CLUSTER

# Kafka's number for the log levels of one broker.
BROKER_LOGGER = 8
# Of one resource in a request: several times as many as there are settings.
KEYS_MAX = 500
KEY_CHARS_MAX = 1_000
TOO_MANY = ApiError(ErrorKind.INVALID_CONFIG, f"a resource has at most {KEYS_MAX} settings in a request")
TOO_LONG = ApiError(
    ErrorKind.INVALID_CONFIG,
    f"a setting has a name of at most {KEY_CHARS_MAX:,} characters, and a value of {VALUE_CHARS_MAX:,}",
)


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


class NamedValue(Protocol):
    """A setting as a request has it."""

    @property
    def name(self) -> str: ...
    @property
    def value(self) -> str | None: ...


def oversized(configs: Sequence[NamedValue]) -> ApiError | None:
    """Why settings of one resource are refused before anything is made of them: it is one step."""
    if len(configs) > KEYS_MAX:
        return TOO_MANY
    if any(len(each.name) > KEY_CHARS_MAX or len(each.value or "") > VALUE_CHARS_MAX for each in configs):
        return TOO_LONG
    return None


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
    if allowed:
        return resource
    return ConfigResult(
        code, f"the caller may not {operation.name.lower().replace('_', ' ')} of this resource"
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
