"""CancelDelays: taking back records that are to be published later. An API of Penstock, not of Kafka.

Whoever may write to a record's topic may take it back. The others are told that there is no such delay.
"""

from collections.abc import Sequence
from functools import partial

from penstock.core.model import ApiError
from penstock.core.protocol.messages.cancel_delays import (
    CancelDelaysRequest,
    CancelDelaysResponse,
    CancelDelaysResponseResult,
)
from penstock.security import AclOperation
from penstock.server.kafka.errors import code_of, message_of
from penstock.server.kafka.request import Request
from penstock.server.kafka.response_rows import topic_resource
from penstock.server.kafka.router import routes


@routes.handles(CancelDelaysRequest)
def cancel_delays(request: CancelDelaysRequest, call: Request) -> None:
    may_write = None if call.authorizer is None else partial(_may_write, call)
    call.backend.delays.cancel(request.delay_ids, partial(_answer, call), may_write)


def _may_write(call: Request, topic: str) -> bool:
    return call.authorize(AclOperation.WRITE, topic_resource(topic))


def _answer(call: Request, outcome: Sequence[ApiError | None] | ApiError) -> None:
    if isinstance(outcome, ApiError):
        response = CancelDelaysResponse(
            throttle_time_ms=call.charge_time(),
            error_code=code_of(outcome),
            error_message=message_of(outcome),
        )
    else:
        rows = tuple(
            CancelDelaysResponseResult()
            if error is None
            else CancelDelaysResponseResult(error_code=code_of(error), error_message=message_of(error))
            for error in outcome
        )
        response = CancelDelaysResponse(throttle_time_ms=call.charge_time(), results=rows)
    call.reply(response)
