"""AlterUserScramCredentials: setting and removing passwords."""

from collections.abc import Iterator, Mapping
from typing import TypeAlias

from penstock.core.metadata import Ok
from penstock.core.metadata.access import ScramCredential, ScramMechanism
from penstock.core.metadata.commands import AlterScramCredentials
from penstock.core.model import ApiError, ErrorKind
from penstock.core.protocol import ErrorCode, Steps
from penstock.core.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsRequestDeletion,
    AlterUserScramCredentialsRequestUpsertion,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResponseUser,
)
from penstock.core.sasl.scram import credential_of_salted
from penstock.security import AclOperation, QuotaType
from penstock.server.kafka.acl_rows import NOT_ALTERED
from penstock.server.kafka.request import Request
from penstock.server.kafka.response_rows import CLUSTER, error_fields
from penstock.server.kafka.router import routes

Deletion: TypeAlias = AlterUserScramCredentialsRequestDeletion
Upsertion: TypeAlias = AlterUserScramCredentialsRequestUpsertion
ErrorFields: TypeAlias = tuple[ErrorCode, str | None]
DENIED: ErrorFields = (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, NOT_ALTERED)
UNKNOWN_MECHANISM: ErrorFields = (
    ErrorCode.UNSUPPORTED_SASL_MECHANISM,
    "there are SCRAM-SHA-256 (1) and SCRAM-SHA-512 (2)",
)


@routes.handles(AlterUserScramCredentialsRequest)
def alter_user_scram_credentials(request: AlterUserScramCredentialsRequest, call: Request) -> Iterator[None]:
    is_allowed = call.authorize(AclOperation.ALTER, CLUSTER)
    asked: dict[str, AlterScramCredentials | ErrorFields] = {}
    users = yield from _by_user(request)
    for user, (deletions, upsertions) in users.items():
        asked[user] = _change(user, deletions, upsertions) if is_allowed else DENIED
        yield
    wanted = [each for each in asked.values() if isinstance(each, AlterScramCredentials)]

    def done(replies: list[Ok | ApiError]) -> None:
        call.charge(QuotaType.MUTATIONS, len(wanted))
        call.run(_answer(call, asked, replies))

    call.backend.access.alter_credentials(wanted, done, call.connection.account)


def _answer(
    call: Request, asked: Mapping[str, AlterScramCredentials | ErrorFields], replies: list[Ok | ApiError]
) -> Iterator[None]:
    left = iter(replies)
    results: list[AlterUserScramCredentialsResponseUser] = []
    for user, each in asked.items():
        code, message = error_fields(next(left)) if isinstance(each, AlterScramCredentials) else each
        results.append(
            AlterUserScramCredentialsResponseUser(user=user, error_code=code, error_message=message)
        )
        yield
    call.reply(AlterUserScramCredentialsResponse(throttle_time_ms=call.charge_time(), results=tuple(results)))


def _by_user(
    request: AlterUserScramCredentialsRequest,
) -> Steps[dict[str, tuple[list[Deletion], list[Upsertion]]]]:
    users: dict[str, tuple[list[Deletion], list[Upsertion]]] = {}
    for deletion in request.deletions:
        users.setdefault(deletion.name, ([], []))[0].append(deletion)
        yield
    for upsertion in request.upsertions:
        users.setdefault(upsertion.name, ([], []))[1].append(upsertion)
        yield
    return users


def _change(
    user: str, deletions: list[Deletion], upsertions: list[Upsertion]
) -> AlterScramCredentials | ErrorFields:
    known = [mechanism.value for mechanism in ScramMechanism]
    mechanisms = [each.mechanism for each in deletions] + [each.mechanism for each in upsertions]
    if any(mechanism not in known for mechanism in mechanisms):
        return UNKNOWN_MECHANISM
    added: list[ScramCredential] = []
    for upsertion in upsertions:
        credential = _credential(upsertion)
        if isinstance(credential, ApiError):
            return error_fields(credential)
        added.append(credential)
    removed = tuple(ScramMechanism(deletion.mechanism) for deletion in deletions)
    return AlterScramCredentials(user, tuple(added), removed)


def _credential(upsertion: Upsertion) -> ScramCredential | ApiError:
    mechanism = ScramMechanism(upsertion.mechanism)
    if len(upsertion.salted_password) != mechanism.key_bytes:
        detail = f"a salted password of {mechanism.sasl_name} has {mechanism.key_bytes} bytes"
        return ApiError(ErrorKind.INVALID_CREDENTIAL, detail)
    return credential_of_salted(
        upsertion.name,
        mechanism,
        bytes(upsertion.salted_password),
        bytes(upsertion.salt),
        upsertion.iterations,
    )
