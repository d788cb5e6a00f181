"""DescribeAcls: which access rules there are."""

from penstock.core.metadata.access import AclBinding
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
from penstock.server.kafka.response_rows import CLUSTER
from penstock.server.kafka.router import routes


@routes.handles(DescribeAclsRequest)
def describe_acls(request: DescribeAclsRequest, call: Request) -> None:
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
    resources: dict[tuple[int, str, int], list[AclBinding]] = {}
    for acl in call.backend.access.acls(wanted):
        resources.setdefault((acl.resource, acl.name, acl.pattern), []).append(acl)
    rows = tuple(
        DescribeAclsResponseResource(
            resource_type=kind,
            resource_name=name,
            pattern_type=pattern,
            acls=tuple(
                DescribeAclsResponseAcl(
                    principal=acl.principal,
                    host=acl.host,
                    operation=acl.operation,
                    permission_type=acl.permission,
                )
                for acl in acls
            ),
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
