"""RenewDelegationToken: clients that are not authenticated have no tokens."""

from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from penstock.server.kafka.request import Request
from penstock.server.kafka.router import routes

NEVER = -1


@routes.handles(RenewDelegationTokenRequest)
def renew_delegation_token(_request: RenewDelegationTokenRequest, call: Request) -> None:
    call.reply(
        RenewDelegationTokenResponse(
            error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
            expiry_timestamp_ms=NEVER,
            throttle_time_ms=call.charge_time(),
        )
    )
