"""DelayRecords: publishing records later. An API of Penstock, not of Kafka."""

from collections.abc import Iterator, Sequence
from functools import partial

from penstock.broker.delays.delay_view import DELAYS_MAX, TOO_MANY, DelayRequest
from penstock.core.model import ApiError, ErrorKind, Timestamp
from penstock.core.protocol.messages.delay_records import (
    DelayRecordsRequest,
    DelayRecordsRequestRecord,
    DelayRecordsResponse,
    DelayRecordsResponseResult,
)
from penstock.core.records.builder import pack_body
from penstock.security import AclOperation, QuotaType
from penstock.server.kafka.errors import code_of, message_of
from penstock.server.kafka.request import Request
from penstock.server.kafka.response_rows import collected, topic_resource
from penstock.server.kafka.router import routes

# Of one record: all of them are stored together, in one go.
HEADERS_MAX = 1_000
TOO_MANY_HEADERS = ApiError(ErrorKind.INVALID_REQUEST, f"a record has {HEADERS_MAX:,} headers at most")
NOT_AUTHORIZED = ApiError(ErrorKind.NOT_AUTHORIZED)


@routes.handles(DelayRecordsRequest)
def delay_records(request: DelayRecordsRequest, call: Request) -> Iterator[None]:
    if not 0 < len(request.records) <= DELAYS_MAX:
        # Before anything is done for each of them.
        _answer(call, request, {}, TOO_MANY)
        return
    if max([len(record.headers or ()) for record in request.records]) > HEADERS_MAX:
        _answer(call, request, {}, TOO_MANY_HEADERS)
        return
    if call.authorizer is not None:
        # What is published later has come in now.
        call.charge(QuotaType.BYTES_IN, sum(map(_size_of, request.records)))
    topics = dict.fromkeys(record.topic for record in request.records)
    refused = {
        topic: None for topic in topics if not call.authorize(AclOperation.WRITE, topic_resource(topic))
    }
    allowed = [record for record in request.records if record.topic not in refused]
    if not allowed:
        _answer(call, request, refused, [])
        return
    wanted = yield from collected(_delay_of(record) for record in allowed)
    call.backend.delays.schedule(wanted, partial(_answer, call, request, refused))


def _size_of(record: DelayRecordsRequestRecord) -> int:
    size = len(record.key or b"") + len(record.value or b"")
    return size + sum([len(header.key) + len(header.value or b"") for header in record.headers or ()])


def _delay_of(record: DelayRecordsRequestRecord) -> DelayRequest:
    headers = tuple((header.key, header.value) for header in record.headers) if record.headers else ()
    body = pack_body(record.key, record.value, headers)
    return DelayRequest(record.topic, Timestamp(record.deliver_at_ms), body, record.partition, record.id)


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
