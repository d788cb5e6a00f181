"""AlterUserScramCredentials: refused, because nobody could log in with them."""

from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResponseUser,
)
from penstock.security import AclOperation
from penstock.server.kafka.request import Request
from penstock.server.kafka.response_rows import CLUSTER
from penstock.server.kafka.router import routes


@routes.handles(AlterUserScramCredentialsRequest)
def alter_user_scram_credentials(request: AlterUserScramCredentialsRequest, call: Request) -> None:
    rows: dict[str, tuple[ErrorCode, str]] = {}
    for upsertion in request.upsertions:
        rows[upsertion.name] = ErrorCode.UNSUPPORTED_SASL_MECHANISM, "SCRAM is not available yet"
    for deletion in request.deletions:
        if deletion.name not in rows:
            rows[deletion.name] = ErrorCode.RESOURCE_NOT_FOUND, "the user has no SCRAM credentials"
    if not call.authorize(AclOperation.ALTER, CLUSTER):
        denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "the caller may not alter the cluster"
        rows = dict.fromkeys(rows, denied)
    call.reply(
        AlterUserScramCredentialsResponse(
            throttle_time_ms=call.charge_time(),
            results=tuple(
                AlterUserScramCredentialsResponseUser(user=name, error_code=code, error_message=message)
                for name, (code, message) in rows.items()
            ),
        )
    )
