"""Access rules as Kafka's messages write them."""

import enum
from typing import TypeVar

from penstock.core.metadata.access import (
    AclFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from penstock.core.protocol.messages.delete_acls import DeleteAclsRequestFilter
from penstock.core.protocol.messages.describe_acls import DescribeAclsRequest

NO_AUTHORIZER = "security is off: security.enabled turns it on"
NOT_DESCRIBED = "the caller may not describe the cluster"
NOT_ALTERED = "the caller may not alter the cluster"
# What a filter says that takes everything, or whatever applies to a name.
ANY = 1
MATCH = 2
E = TypeVar("E", bound=enum.IntEnum)


def acl_filter(asked: DescribeAclsRequest | DeleteAclsRequestFilter) -> AclFilter | str:
    """The filter, or what is wrong with it."""
    pattern = asked.pattern_type_filter
    try:
        return AclFilter(
            resource=_number(ResourceType, asked.resource_type_filter),
            pattern=None if pattern == MATCH else _number(PatternType, pattern),
            name=asked.resource_name_filter,
            principal=asked.principal_filter,
            host=asked.host_filter,
            operation=_number(AclOperation, asked.operation),
            permission=_number(AclPermission, asked.permission_type),
            matches_name=pattern == MATCH,
        )
    except ValueError as error:
        return str(error)


def _number(kind: type[E], number: int) -> E | None:
    return None if number == ANY else kind(number)
