"""DescribeAcls: which access rules there are."""

from collections.abc import Iterator

from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.describe_acls import (
    DescribeAclsRequest,
    DescribeAclsResponse,
    DescribeAclsResponseAcl,
    DescribeAclsResponseResource,
)
from penstock.security import AclOperation
from penstock.server.kafka.acl_rows import NO_AUTHORIZER, NOT_DESCRIBED, acl_filter
from penstock.server.kafka.request import Request
from penstock.server.kafka.response_rows import CLUSTER, collected
from penstock.server.kafka.router import routes


@routes.handles(DescribeAclsRequest)
def describe_acls(request: DescribeAclsRequest, call: Request) -> Iterator[None]:
    if not call.backend.is_secured:
        _reply(call, ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
        return
    if not call.authorize(AclOperation.DESCRIBE, CLUSTER):
        _reply(call, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, NOT_DESCRIBED)
        return
    wanted = acl_filter(request)
    if isinstance(wanted, str):
        _reply(call, ErrorCode.INVALID_REQUEST, wanted)
        return
    found = yield from call.backend.access.acls(wanted)
    resources: dict[tuple[int, str, int], list[DescribeAclsResponseAcl]] = {}
    for acl in found:
        row = DescribeAclsResponseAcl(
            principal=acl.principal, host=acl.host, operation=acl.operation, permission_type=acl.permission
        )
        resources.setdefault((acl.resource, acl.name, acl.pattern), []).append(row)
        yield
    rows = yield from collected(
        DescribeAclsResponseResource(
            resource_type=kind, resource_name=name, pattern_type=pattern, acls=tuple(acls)
        )
        for (kind, name, pattern), acls in resources.items()
    )
    _reply(call, ErrorCode.NONE, None, rows)


def _reply(
    call: Request,
    code: ErrorCode,
    message: str | None,
    resources: tuple[DescribeAclsResponseResource, ...] = (),
) -> None:
    call.reply(
        DescribeAclsResponse(
            throttle_time_ms=call.charge_time(), error_code=code, error_message=message, resources=resources
        )
    )
