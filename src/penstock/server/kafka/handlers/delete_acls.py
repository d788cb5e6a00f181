"""DeleteAcls: there is no authorizer, and Kafka's answer for that."""

from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.delete_acls import (
    DeleteAclsRequest,
    DeleteAclsResponse,
    DeleteAclsResponseFilter,
)
from penstock.server.kafka.handlers.describe_acls import NO_AUTHORIZER
from penstock.server.kafka.request import Request
from penstock.server.kafka.router import routes


@routes.handles(DeleteAclsRequest)
def delete_acls(request: DeleteAclsRequest, call: Request) -> None:
    row = DeleteAclsResponseFilter(
        error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER, matching_acls=()
    )
    call.reply(
        DeleteAclsResponse(
            throttle_time_ms=call.charge_time(), filter_results=tuple(row for _ in request.filters)
        )
    )
