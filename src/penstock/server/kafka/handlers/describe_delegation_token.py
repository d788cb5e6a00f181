"""DescribeDelegationToken: clients that are not authenticated have no tokens."""

from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from penstock.server.kafka.request import Request
from penstock.server.kafka.router import routes


@routes.handles(DescribeDelegationTokenRequest)
def describe_delegation_token(_request: DescribeDelegationTokenRequest, call: Request) -> None:
    call.reply(
        DescribeDelegationTokenResponse(
            error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
            tokens=(),
            throttle_time_ms=call.charge_time(),
        )
    )
