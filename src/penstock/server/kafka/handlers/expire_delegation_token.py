"""ExpireDelegationToken: clients that are not authenticated have no tokens."""

from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from penstock.server.kafka.request import Request
from penstock.server.kafka.router import routes

NEVER = -1


@routes.handles(ExpireDelegationTokenRequest)
def expire_delegation_token(_request: ExpireDelegationTokenRequest, call: Request) -> None:
    call.reply(
        ExpireDelegationTokenResponse(
            error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
            expiry_timestamp_ms=NEVER,
            throttle_time_ms=call.charge_time(),
        )
    )
