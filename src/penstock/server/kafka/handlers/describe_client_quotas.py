"""DescribeClientQuotas: which limits clients have."""

from penstock.core.metadata.access import QuotaEntity
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasRequestComponent,
    DescribeClientQuotasResponse,
    DescribeClientQuotasResponseEntityPart,
    DescribeClientQuotasResponseEntry,
    DescribeClientQuotasResponseValue,
)
from penstock.security import AclOperation
from penstock.server.kafka.request import Request
from penstock.server.kafka.response_rows import CLUSTER
from penstock.server.kafka.router import routes

ENTITY_TYPES = ("user", "client-id", "ip")
EXACT, DEFAULT, ANY = range(3)


@routes.handles(DescribeClientQuotasRequest)
def describe_client_quotas(request: DescribeClientQuotasRequest, call: Request) -> None:
    code, message = ErrorCode.NONE, None
    if not call.authorize(AclOperation.DESCRIBE_CONFIGS, CLUSTER):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    else:
        message = _problem(request.components)
        code = ErrorCode.NONE if message is None else ErrorCode.INVALID_REQUEST
    call.reply(
        DescribeClientQuotasResponse(
            throttle_time_ms=call.charge_time(),
            error_code=code,
            error_message=message,
            entries=_entries(request, call) if code is ErrorCode.NONE else None,
        )
    )


def _entries(
    request: DescribeClientQuotasRequest, call: Request
) -> tuple[DescribeClientQuotasResponseEntry, ...]:
    return tuple(
        DescribeClientQuotasResponseEntry(
            entity=tuple(
                DescribeClientQuotasResponseEntityPart(entity_type=kind, entity_name=name)
                for kind, name in entity
            ),
            values=tuple(
                DescribeClientQuotasResponseValue(key=key, value=value) for key, value in limits.items()
            ),
        )
        for entity, limits in call.backend.access.quotas()
        if _is_asked_for(entity, request)
    )


def _is_asked_for(entity: QuotaEntity, request: DescribeClientQuotasRequest) -> bool:
    """Whether an entity has every part that is asked for; `strict`: and no other."""
    names = dict(entity)
    if request.strict and len(names) != len(request.components):
        return False
    for component in request.components:
        if component.entity_type not in names:
            return False
        name = names[component.entity_type]
        if component.match_type == EXACT and name != component.match:
            return False
        if component.match_type == DEFAULT and name is not None:
            return False
    return True


def _problem(components: tuple[DescribeClientQuotasRequestComponent, ...]) -> str | None:
    """What is wrong with a filter, as Kafka checks it."""
    kinds = [component.entity_type for component in components]
    if len(frozenset(kinds)) != len(kinds):
        return "an entity type appears twice"
    for component in components:
        if component.entity_type not in ENTITY_TYPES:
            return f"there is no entity type {component.entity_type!r}"
        if component.match_type not in (EXACT, DEFAULT, ANY):
            return f"there is no match type {component.match_type}"
        if (component.match is None) is (component.match_type == EXACT):
            return "exact matches name an entity, and others do not"
    return None
