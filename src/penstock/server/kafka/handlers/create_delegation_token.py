"""CreateDelegationToken: none for clients that are not authenticated."""

from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from penstock.security import Principal
from penstock.server.kafka.request import Request
from penstock.server.kafka.router import routes

NEVER = -1
REQUESTER_SINCE = 3
NOBODY = Principal("", "")


@routes.handles(CreateDelegationTokenRequest)
def create_delegation_token(_request: CreateDelegationTokenRequest, call: Request) -> None:
    principal = call.session.principal
    requester = principal if call.version >= REQUESTER_SINCE else NOBODY
    call.reply(
        CreateDelegationTokenResponse(
            error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
            principal_type=principal.kind,
            principal_name=principal.name,
            token_requester_principal_type=requester.kind,
            token_requester_principal_name=requester.name,
            issue_timestamp_ms=NEVER,
            expiry_timestamp_ms=NEVER,
            max_timestamp_ms=NEVER,
            token_id="",
            hmac=b"",
            throttle_time_ms=call.charge_time(),
        )
    )
