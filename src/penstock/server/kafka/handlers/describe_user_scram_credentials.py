"""DescribeUserScramCredentials: no user has any."""

from collections import Counter

from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResponseUser,
)
from penstock.security import AclOperation
from penstock.server.kafka.request import Request
from penstock.server.kafka.response_rows import CLUSTER
from penstock.server.kafka.router import routes


@routes.handles(DescribeUserScramCredentialsRequest)
def describe_user_scram_credentials(request: DescribeUserScramCredentialsRequest, call: Request) -> None:
    allowed = call.authorize(AclOperation.DESCRIBE, CLUSTER)
    asked = Counter(user.name for user in request.users or ())
    call.reply(
        DescribeUserScramCredentialsResponse(
            throttle_time_ms=call.charge_time(),
            error_code=ErrorCode.NONE if allowed else ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            error_message=None if allowed else "the caller may not describe the cluster",
            results=tuple(_row(name, count) for name, count in asked.items()) if allowed else (),
        )
    )


def _row(name: str, count: int) -> DescribeUserScramCredentialsResponseUser:
    code, message = ErrorCode.RESOURCE_NOT_FOUND, "the user has no SCRAM credentials"
    if count > 1:
        code, message = ErrorCode.DUPLICATE_RESOURCE, "the user is named more than once"
    return DescribeUserScramCredentialsResponseUser(
        user=name, error_code=code, error_message=message, credential_infos=()
    )
