"""DescribeUserScramCredentials: who has which passwords; never what they are."""

from collections.abc import Iterator

from penstock.core.metadata.access import ScramCredential
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResponseCredential,
    DescribeUserScramCredentialsResponseUser,
)
from penstock.security import AclOperation
from penstock.server.kafka.acl_rows import NOT_DESCRIBED
from penstock.server.kafka.request import Request
from penstock.server.kafka.response_rows import CLUSTER, collected, repeated, unique
from penstock.server.kafka.router import routes


@routes.handles(DescribeUserScramCredentialsRequest)
def describe_user_scram_credentials(
    request: DescribeUserScramCredentialsRequest, call: Request
) -> Iterator[None]:
    allowed = call.authorize(AclOperation.DESCRIBE, CLUSTER)
    known = call.backend.access.credentials() if allowed else {}
    names = [user.name for user in request.users] if request.users else list(known)
    twice = yield from repeated(names if allowed else ())
    asked = yield from unique(names if allowed else ())
    results = yield from collected(
        _row(name, known.get(name, []), is_repeated=name in twice) for name in asked
    )
    call.reply(
        DescribeUserScramCredentialsResponse(
            throttle_time_ms=call.charge_time(),
            error_code=ErrorCode.NONE if allowed else ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            error_message=None if allowed else NOT_DESCRIBED,
            results=results,
        )
    )


def _row(
    name: str, credentials: list[ScramCredential], *, is_repeated: bool
) -> DescribeUserScramCredentialsResponseUser:
    code: ErrorCode = ErrorCode.NONE
    message: str | None = None
    if is_repeated:
        code, message = ErrorCode.DUPLICATE_RESOURCE, "the user is named more than once"
    elif not credentials:
        code, message = ErrorCode.RESOURCE_NOT_FOUND, "the user has no SCRAM credentials"
    return DescribeUserScramCredentialsResponseUser(
        user=name,
        error_code=code,
        error_message=message,
        credential_infos=tuple(
            DescribeUserScramCredentialsResponseCredential(
                mechanism=credential.mechanism, iterations=credential.iterations
            )
            for credential in (credentials if code is ErrorCode.NONE else ())
        ),
    )
