"""DescribeAcls: there is no authorizer, and Kafka's answer for that."""

from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from penstock.server.kafka.request import Request
from penstock.server.kafka.router import routes

NO_AUTHORIZER = "no authorizer is configured"


@routes.handles(DescribeAclsRequest)
def describe_acls(_request: DescribeAclsRequest, call: Request) -> None:
    call.reply(
        DescribeAclsResponse(
            throttle_time_ms=call.charge_time(),
            error_code=ErrorCode.SECURITY_DISABLED,
            error_message=NO_AUTHORIZER,
            resources=(),
        )
    )
