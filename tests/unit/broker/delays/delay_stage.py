"""Nodes in virtual time, with a topic and somebody who publishes records later."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from penstock.broker.delays.delay_view import DelayRequest, ListedDelays
from penstock.core.metadata import DELAYED_TOPIC
from penstock.core.model import ApiError, ErrorKind, Timestamp
from penstock.core.records.builder import pack_body
from tests.unit.broker.queues.queue_stage import TOPIC, QueueStage

RETRIABLE = (
    ErrorKind.NOT_COORDINATOR,
    ErrorKind.COORDINATOR_LOADING,
    ErrorKind.COORDINATOR_NOT_AVAILABLE,
    ErrorKind.UNKNOWN_TOPIC,
    ErrorKind.TIMED_OUT,
)


class DelayStage(QueueStage):
    """What clients of delayed records ask."""

    def wall(self, node: int = 1) -> int:
        return self.nodes[node].services._runtime.clock.wall()

    def delay(self, value: str, delay_ms: int, *, node: int = 1, topic: str = TOPIC, **fields: Any) -> str:
        """Publish a record later; the id of the delay. Repeated under one id until it is stored."""
        body = pack_body(fields.pop("key", None), value.encode(), fields.pop("headers", ()))
        chosen = fields.pop("id", int.from_bytes(value.encode()[-7:], "big"))
        deliver_at = fields.pop("deliver_at", self.wall() + delay_ms)
        request = DelayRequest(topic, Timestamp(deliver_at), body, fields.pop("partition", -1), chosen)
        result = self.again(lambda done: self.at(node).delays.schedule([request], done))
        assert isinstance(result, str), result
        return result

    def delay_all(self, requests: Sequence[DelayRequest], *, node: int = 1) -> list[str | ApiError]:
        """Publish records later, by one request; the results once a coordinator has decided."""
        for _ in range(200):
            reply = self.ask(lambda done: self.at(node).delays.schedule(requests, done))
            if not isinstance(reply, ApiError):
                return list(reply)
            assert reply.kind in RETRIABLE, reply
            self.pass_ms(100)
        raise AssertionError(reply)

    def cancel(self, delay_id: str, *, node: int = 1) -> ApiError | None:
        result = self.again(lambda done: self.at(node).delays.cancel([delay_id], done))
        assert result is None or isinstance(result, ApiError), result
        return result

    def listed(self, topic: str | None = None, *, node: int = 1, count: int = 100) -> list[str]:
        found, after = list[str](), None
        while True:
            list_pending = self.at(node).delays.list_pending
            reply = self.ask(partial(list_pending, topic, count, after))
            assert isinstance(reply, ListedDelays), reply
            found += [each.delay_id for each in reply.delays]
            after = reply.next_after
            if after is None:
                return found

    def again(self, question: Callable[[Callable[[Any], None]], None]) -> Any:
        """Ask until the reply is not that somebody else coordinates; the first of its results."""
        for _ in range(200):
            reply = self.ask(question)
            result = reply[0] if isinstance(reply, Sequence) else reply
            if not isinstance(result, ApiError) or result.kind not in RETRIABLE:
                return result
            self.pass_ms(100)
        raise AssertionError(result)

    def values(self, topic: str = TOPIC) -> list[str]:
        """What consumers of committed records see."""
        return [(record.value or b"").decode() for record in self.committed(topic)]

    def pending(self) -> int:
        """How many are pending, as the coordinators have it."""
        return sum(
            len(coordinator.machine.pending)
            for node in self.live
            for coordinator in node.services._delays or ()
            if coordinator.partition.stopped is None
        )

    def delayed_logs(self) -> list[tuple[int, int]]:
        """Start and end of the logs of `__delayed`, on a node that leads all of them."""
        found = [self.at(1).partitions.find(DELAYED_TOPIC, index) for index in range(4)]
        return [(partition.log.start, partition.log.end) for partition in found if partition is not None]

    def delayed_topic(self) -> Any:
        return self.at(1).controller.image.topic(DELAYED_TOPIC)
