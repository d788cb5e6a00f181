"""ListDelays: which records are to be published later. An API of Penstock, not of Kafka.

The id of a delay is what cancels it: it is shown to those who may write to the topic. To the others a list is
as if there were none.
"""

from functools import partial

from penstock.broker.delays.delay_view import ListedDelays
from penstock.core.model import ApiError
from penstock.core.protocol.messages.list_delays import (
    ListDelaysRequest,
    ListDelaysResponse,
    ListDelaysResponseDelay,
)
from penstock.security import AclOperation
from penstock.server.kafka.errors import code_of, message_of
from penstock.server.kafka.request import Request
from penstock.server.kafka.response_rows import topic_resource
from penstock.server.kafka.router import routes


@routes.handles(ListDelaysRequest)
def list_delays(request: ListDelaysRequest, call: Request) -> None:
    may_write = None if call.authorizer is None else partial(_may_write, call)
    call.backend.delays.list_pending(
        request.topic, request.count, request.after, partial(_answer, call), may_write
    )


def _may_write(call: Request, topic: str) -> bool:
    return call.permits(AclOperation.WRITE, topic_resource(topic))


def _answer(call: Request, outcome: ListedDelays | ApiError) -> None:
    if isinstance(outcome, ApiError):
        response = ListDelaysResponse(
            throttle_time_ms=call.charge_time(),
            error_code=code_of(outcome),
            error_message=message_of(outcome),
        )
    else:
        rows = tuple(
            ListDelaysResponseDelay(
                delay_id=each.delay_id,
                topic=each.delay.topic,
                deliver_at_ms=each.delay.deliver_at,
                size_bytes=each.delay.size_bytes,
            )
            for each in outcome.delays
        )
        response = ListDelaysResponse(
            throttle_time_ms=call.charge_time(), delays=rows, next_after=outcome.next_after
        )
    call.reply(response)
