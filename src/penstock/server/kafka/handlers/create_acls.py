"""CreateAcls: there is no authorizer, and Kafka's answer for that."""

from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.create_acls import (
    CreateAclsRequest,
    CreateAclsResponse,
    CreateAclsResponseAcl,
)
from penstock.server.kafka.handlers.describe_acls import NO_AUTHORIZER
from penstock.server.kafka.request import Request
from penstock.server.kafka.router import routes


@routes.handles(CreateAclsRequest)
def create_acls(request: CreateAclsRequest, call: Request) -> None:
    row = CreateAclsResponseAcl(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
    call.reply(
        CreateAclsResponse(throttle_time_ms=call.charge_time(), results=tuple(row for _ in request.creations))
    )
