"""Messages that are to be published later: list them, cancel one."""

from typing import Annotated

from msgspec import Meta
from starlette.responses import Response

from penstock.server.gateway.backend import GatewayBackend
from penstock.server.http.operations import (
    NoQuery,
    OperationTable,
    RestAnswer,
    RestRequest,
    RestStruct,
)
from penstock.server.http.problem import failed

OPERATIONS = OperationTable("delays", "Messages that are published later")
COUNT_DEFAULT = 500
COUNT_MAX = 1_000


class DelaysQuery(RestStruct, frozen=True):
    """Of one topic or of all; `after` is the `next_after` of the page before."""

    topic: str | None = None
    count: Annotated[int, Meta(ge=1, le=COUNT_MAX)] = COUNT_DEFAULT
    after: str | None = None


class PendingDelayView(RestAnswer, frozen=True):
    """A message that waits."""

    delay_id: str
    topic: str
    deliver_at: int


class PendingDelayPage(RestAnswer, frozen=True):
    """Some that wait; there may be more behind `next_after`, even if there are none here."""

    delays: list[PendingDelayView]
    next_after: str | None


@OPERATIONS.add("GET", "/v1/delays", "Messages that wait", query=DelaysQuery, answer=PendingDelayPage)
async def list_delays(backend: GatewayBackend, request: RestRequest[DelaysQuery, None]) -> PendingDelayPage:
    query = request.query
    answer = await backend.queues.delays(query.topic, count=query.count, after=query.after)
    return PendingDelayPage(
        delays=[
            PendingDelayView(delay_id=one.delay_id, topic=one.topic, deliver_at=one.deliver_at_ms)
            for one in answer.delays
        ],
        next_after=answer.next_after,
    )


@OPERATIONS.add("DELETE", "/v1/delays/{delay_id}", "Do not publish a message that waits", status=204)
async def cancel_delay(backend: GatewayBackend, request: RestRequest[NoQuery, None]) -> Response:
    (error,) = await backend.queues.cancel([request.path["delay_id"]])
    if error is not None:
        raise failed(error.code, error.detail)
    return Response(status_code=204)
