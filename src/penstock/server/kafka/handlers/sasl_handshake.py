"""SaslHandshake: agreeing on how a client logs in."""

from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from penstock.server.kafka.request import Request
from penstock.server.kafka.router import routes


@routes.handles(SaslHandshakeRequest)
def sasl_handshake(request: SaslHandshakeRequest, call: Request) -> None:
    authentication = call.connection.authentication
    if authentication is None:
        # On a listener without SASL a client has nothing to shake hands about.
        call.reply(SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=()))
        return
    # After version 0, messages of the mechanism would come without a header; no client of today does that.
    code = ErrorCode.UNSUPPORTED_VERSION
    if call.version > 0:
        code = authentication.shake_hands(request.mechanism, call.session.host)
    call.reply(SaslHandshakeResponse(error_code=code, mechanisms=authentication.mechanisms))
