"""CancelDelays: taking back records that are to be published later. An API of Penstock, not of Kafka.

Whoever knows the id of a delay may cancel it.
"""

from collections.abc import Sequence
from functools import partial

from penstock.core.model import ApiError
from penstock.core.protocol.messages.cancel_delays import (
    CancelDelaysRequest,
    CancelDelaysResponse,
    CancelDelaysResponseResult,
)
from penstock.server.kafka.errors import code_of, message_of
from penstock.server.kafka.request import Request
from penstock.server.kafka.router import routes


@routes.handles(CancelDelaysRequest)
def cancel_delays(request: CancelDelaysRequest, call: Request) -> None:
    call.backend.delays.cancel(request.delay_ids, partial(_answer, call))


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
