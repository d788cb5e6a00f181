"""What the handlers of group APIs have in common."""

from collections.abc import Callable
from typing import Generic, TypeVar

from penstock.broker.coordinator.group_metrics import ClientKey
from penstock.core.model import Refused
from penstock.core.protocol import ErrorCode
from penstock.gateways.kafka.call import Call
from penstock.gateways.kafka.refusals import code_of
from penstock.security import AclOperation, Resource, ResourceType

R = TypeVar("R")
# What is kept of a member must fit into the answers of every version, and into the coordinator's records.
NAME_CHARS_MAX = 1_000


def group_resource(group_id: str) -> Resource:
    return Resource(ResourceType.GROUP, group_id)


def may(call: Call, operation: AclOperation, group_id: str) -> bool:
    return call.authorize(operation, Resource(ResourceType.GROUP, group_id))


def code_in(reply: object) -> ErrorCode:
    """The error that a reply stands for, if it does."""
    return code_of(reply) if isinstance(reply, Refused) else ErrorCode.NONE


def reader_of(call: Call) -> ClientKey:
    """Who is calling, in the form that a group keeps of its members."""
    # An address as Java shows it, and Kafka's tools with it.
    return ClientKey(call.session.client_id[:NAME_CHARS_MAX], f"/{call.session.host}")


class Rows(Generic[R]):
    """The rows of an answer, filled in any order, and sent when the last one is there."""

    __slots__ = ("_left", "_rows", "_send")

    def __init__(self, count: int, send: Callable[[tuple[R, ...]], None]) -> None:
        self._rows: list[R | None] = [None] * count
        self._send = send
        # One for whoever fills them, so that nothing is sent before every row was asked for.
        self._left = count + 1

    def put(self, index: int, row: R) -> None:
        self._rows[index] = row
        self.end()

    def end(self) -> None:
        """One thing less to wait for."""
        self._left -= 1
        if not self._left:
            self._send(tuple(row for row in self._rows if row is not None))
