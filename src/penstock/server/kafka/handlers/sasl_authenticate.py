"""SaslAuthenticate: a message of the mechanism that was agreed on."""

from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from penstock.server.kafka.request import Request
from penstock.server.kafka.router import routes


@routes.handles(SaslAuthenticateRequest)
def sasl_authenticate(request: SaslAuthenticateRequest, call: Request) -> None:
    authentication = call.connection.authentication
    if authentication is None:
        call.reply(
            SaslAuthenticateResponse(
                error_code=ErrorCode.ILLEGAL_SASL_STATE,
                error_message="this listener does not use SASL",
                auth_bytes=b"",
            )
        )
        return
    authentication.authenticate(bytes(request.auth_bytes), call)
