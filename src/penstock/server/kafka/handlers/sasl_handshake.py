"""SaslHandshake: on a listener without SASL a client has nothing to shake hands about."""

from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from penstock.server.kafka.request import Request
from penstock.server.kafka.router import routes


@routes.handles(SaslHandshakeRequest)
def sasl_handshake(_request: SaslHandshakeRequest, call: Request) -> None:
    call.reply(SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=()))
