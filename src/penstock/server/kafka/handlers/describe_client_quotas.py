"""DescribeClientQuotas: which limits clients have."""

from collections.abc import Iterator

from penstock.core.ip_address import canonical_address
from penstock.core.metadata.access import IP, QuotaEntity
from penstock.core.protocol import ErrorCode, Steps
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
def describe_client_quotas(request: DescribeClientQuotasRequest, call: Request) -> Iterator[None]:
    code, message = ErrorCode.NONE, None
    if not call.authorize(AclOperation.DESCRIBE_CONFIGS, CLUSTER):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    else:
        message = _problem(request.components)
        code = ErrorCode.NONE if message is None else ErrorCode.INVALID_REQUEST
    entries = None
    if code is ErrorCode.NONE:
        entries = yield from _entries(request, call)
    call.reply(
        DescribeClientQuotasResponse(
            throttle_time_ms=call.charge_time(), error_code=code, error_message=message, entries=entries
        )
    )


def _entries(
    request: DescribeClientQuotasRequest, call: Request
) -> Steps[tuple[DescribeClientQuotasResponseEntry, ...]]:
    found: list[DescribeClientQuotasResponseEntry] = []
    stored = yield from call.backend.access.quotas()
    for entity, limits in stored:
        if _is_asked_for(entity, request):
            found.append(_entry(entity, limits))
        yield
    return tuple(found)


def _entry(entity: QuotaEntity, limits: dict[str, float]) -> DescribeClientQuotasResponseEntry:
    return DescribeClientQuotasResponseEntry(
        entity=tuple(
            DescribeClientQuotasResponseEntityPart(entity_type=kind, entity_name=name)
            for kind, name in entity
        ),
        values=tuple(
            DescribeClientQuotasResponseValue(key=key, value=value) for key, value in limits.items()
        ),
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
        if component.match_type == EXACT and not _is_name(component, name):
            return False
        if component.match_type == DEFAULT and name is not None:
            return False
    return True


def _is_name(component: DescribeClientQuotasRequestComponent, name: str | None) -> bool:
    match = component.match
    if name is None or match is None or component.entity_type != IP:
        return name == match
    return canonical_address(name) == canonical_address(match)


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
