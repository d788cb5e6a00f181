"""CreateAcls: adding access rules."""

from collections.abc import Iterable, Iterator

from penstock.core.metadata import Ok
from penstock.core.metadata.access import (
    AclBinding,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from penstock.core.model import ApiError, ErrorKind
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.create_acls import (
    CreateAclsRequest,
    CreateAclsRequestAcl,
    CreateAclsResponse,
    CreateAclsResponseAcl,
)
from penstock.security import QuotaType
from penstock.server.kafka.acl_rows import NO_AUTHORIZER, NOT_ALTERED
from penstock.server.kafka.request import Request
from penstock.server.kafka.response_rows import CLUSTER, collected, error_fields
from penstock.server.kafka.router import routes


@routes.handles(CreateAclsRequest)
def create_acls(request: CreateAclsRequest, call: Request) -> Iterator[None]:
    refusal: tuple[ErrorCode, str | None] | None = None
    if not call.backend.is_secured:
        refusal = ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER
    elif not call.authorize(AclOperation.ALTER, CLUSTER):
        refusal = ErrorCode.CLUSTER_AUTHORIZATION_FAILED, NOT_ALTERED
    if refusal is not None:
        yield from _reply(call, (refusal for _ in request.creations))
        return
    asked = yield from collected(_binding(creation) for creation in request.creations)
    wanted = [each for each in asked if isinstance(each, AclBinding)]

    def done(replies: list[Ok | ApiError]) -> None:
        left = iter(replies)
        call.charge(QuotaType.MUTATIONS, len(wanted))
        outcomes = (error_fields(next(left) if isinstance(each, AclBinding) else each) for each in asked)
        call.run(_reply(call, outcomes))

    call.backend.access.create_acls(wanted, done, call.connection.account)


def _binding(creation: CreateAclsRequestAcl) -> AclBinding | ApiError:
    try:
        return AclBinding(
            ResourceType(creation.resource_type),
            PatternType(creation.resource_pattern_type),
            creation.resource_name,
            creation.principal,
            creation.host,
            AclOperation(creation.operation),
            AclPermission(creation.permission_type),
        )
    except ValueError as error:
        return ApiError(ErrorKind.INVALID_ACL, str(error))


def _reply(call: Request, outcomes: Iterable[tuple[ErrorCode, str | None]]) -> Iterator[None]:
    results = yield from collected(
        CreateAclsResponseAcl(error_code=code, error_message=message) for code, message in outcomes
    )
    call.reply(CreateAclsResponse(throttle_time_ms=call.charge_time(), results=results))
