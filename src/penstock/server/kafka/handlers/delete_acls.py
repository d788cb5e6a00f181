"""DeleteAcls: removing access rules."""

from collections.abc import Iterator, Sequence

from penstock.core.metadata.access import AclBinding, AclFilter
from penstock.core.metadata.commands import DeletedAcls
from penstock.core.model import ApiError
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.delete_acls import (
    DeleteAclsRequest,
    DeleteAclsResponse,
    DeleteAclsResponseAcl,
    DeleteAclsResponseFilter,
)
from penstock.security import AclOperation, QuotaType
from penstock.server.kafka.acl_rows import NO_AUTHORIZER, NOT_ALTERED, acl_filter
from penstock.server.kafka.request import Request
from penstock.server.kafka.response_rows import CLUSTER, collected, error_fields
from penstock.server.kafka.router import routes


@routes.handles(DeleteAclsRequest)
def delete_acls(request: DeleteAclsRequest, call: Request) -> Iterator[None]:
    if not call.backend.is_secured:
        _reply(call, [_refused(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)] * len(request.filters))
        return
    if not call.authorize(AclOperation.ALTER, CLUSTER):
        denied = _refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, NOT_ALTERED)
        _reply(call, [denied] * len(request.filters))
        return
    asked = yield from collected(acl_filter(each) for each in request.filters)

    def done(reply: DeletedAcls | ApiError) -> None:
        call.run(_answer(call, asked, reply))

    filters = [each for each in asked if isinstance(each, AclFilter)]
    call.backend.access.delete_acls(filters, done, call.connection.account)


def _answer(call: Request, asked: Sequence[AclFilter | str], reply: DeletedAcls | ApiError) -> Iterator[None]:
    rows: list[DeleteAclsResponseFilter] = []
    taken = iter(reply.by_filter if isinstance(reply, DeletedAcls) else ())
    removed = 0
    for each in asked:
        if isinstance(each, str):
            rows.append(_refused(ErrorCode.INVALID_REQUEST, each))
        elif isinstance(reply, ApiError):
            rows.append(_refused(*error_fields(reply)))
        else:
            acls = next(taken)
            removed += len(acls)
            rows.append(_row(acls))
        yield
    call.charge(QuotaType.MUTATIONS, removed)
    _reply(call, rows)


def _refused(code: ErrorCode, message: str | None) -> DeleteAclsResponseFilter:
    return DeleteAclsResponseFilter(error_code=code, error_message=message, matching_acls=())


def _row(acls: tuple[AclBinding, ...]) -> DeleteAclsResponseFilter:
    return DeleteAclsResponseFilter(
        error_code=ErrorCode.NONE,
        error_message=None,
        matching_acls=tuple(
            DeleteAclsResponseAcl(
                error_code=ErrorCode.NONE,
                error_message=None,
                resource_type=acl.resource,
                resource_name=acl.name,
                pattern_type=acl.pattern,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
            for acl in acls
        ),
    )


def _reply(call: Request, rows: list[DeleteAclsResponseFilter]) -> None:
    call.reply(DeleteAclsResponse(throttle_time_ms=call.charge_time(), filter_results=tuple(rows)))
