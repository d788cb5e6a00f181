"""DelayRecords: publishing records later. An API of Penstock, not of Kafka."""

from collections.abc import Sequence
from functools import partial

from penstock.broker.delays.delay_view import DELAYS_MAX, TOO_MANY, DelayRequest
from penstock.core.delays import DelayedRecord
from penstock.core.model import ApiError, ErrorKind, Timestamp
from penstock.core.protocol.messages.delay_records import (
    DelayRecordsRequest,
    DelayRecordsRequestRecord,
    DelayRecordsResponse,
    DelayRecordsResponseResult,
)
from penstock.security import AclOperation
from penstock.server.kafka.errors import code_of, message_of
from penstock.server.kafka.request import Request
from penstock.server.kafka.response_rows import topic_resource
from penstock.server.kafka.router import routes

NOT_AUTHORIZED = ApiError(ErrorKind.NOT_AUTHORIZED)


@routes.handles(DelayRecordsRequest)
def delay_records(request: DelayRecordsRequest, call: Request) -> None:
    if not 0 < len(request.records) <= DELAYS_MAX:
        # Before anything is done for each of them.
        _answer(call, request, {}, TOO_MANY)
        return
    topics = dict.fromkeys(record.topic for record in request.records)
    refused = {
        topic: None for topic in topics if not call.authorize(AclOperation.WRITE, topic_resource(topic))
    }
    allowed = [record for record in request.records if record.topic not in refused]
    if not allowed:
        _answer(call, request, refused, [])
        return
    call.backend.delays.schedule(
        [_delay_of(record) for record in allowed], partial(_answer, call, request, refused)
    )


def _delay_of(record: DelayRecordsRequestRecord) -> DelayRequest:
    headers = tuple((header.key, header.value) for header in record.headers) if record.headers else ()
    return DelayRequest(
        Timestamp(record.deliver_at_ms),
        DelayedRecord(record.topic, record.partition, record.key, record.value, headers),
        record.id,
    )


def _answer(
    call: Request,
    request: DelayRecordsRequest,
    refused: dict[str, None],
    outcome: Sequence[str | ApiError] | ApiError,
) -> None:
    if isinstance(outcome, ApiError):
        call.reply(
            DelayRecordsResponse(
                throttle_time_ms=call.charge_time(),
                error_code=code_of(outcome),
                error_message=message_of(outcome),
            )
        )
        return
    left = iter(outcome)
    rows = tuple(
        _row(NOT_AUTHORIZED if record.topic in refused else next(left)) for record in request.records
    )
    call.reply(DelayRecordsResponse(throttle_time_ms=call.charge_time(), results=rows))


def _row(result: str | ApiError) -> DelayRecordsResponseResult:
    if isinstance(result, str):
        return DelayRecordsResponseResult(delay_id=result)
    return DelayRecordsResponseResult(error_code=code_of(result), error_message=message_of(result))
