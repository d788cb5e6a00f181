"""AlterClientQuotas: setting and removing limits of clients."""

from collections.abc import Iterable, Iterator

from penstock.core.metadata import Ok
from penstock.core.metadata.commands import AlterClientQuotas
from penstock.core.model import ApiError
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntry,
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntityPart,
    AlterClientQuotasResponseEntry,
)
from penstock.security import AclOperation, QuotaType
from penstock.server.kafka.request import Request
from penstock.server.kafka.response_rows import CLUSTER, collected, error_fields
from penstock.server.kafka.router import routes

NOT_ALLOWED = "the caller may not alter the cluster's configs"


@routes.handles(AlterClientQuotasRequest)
def alter_client_quotas(request: AlterClientQuotasRequest, call: Request) -> Iterator[None]:
    if not call.authorize(AclOperation.ALTER_CONFIGS, CLUSTER):
        denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED, NOT_ALLOWED
        yield from _reply(call, request, (denied for _ in request.entries))
        return
    wanted = yield from collected(
        AlterClientQuotas(
            tuple((part.entity_type, part.entity_name) for part in entry.entity),
            tuple((change.key, None if change.remove else change.value) for change in entry.ops),
            request.validate_only,
        )
        for entry in request.entries
    )

    def done(replies: list[Ok | ApiError]) -> None:
        call.charge(QuotaType.MUTATIONS, 0 if request.validate_only else len(wanted))
        call.run(_reply(call, request, map(error_fields, replies)))

    call.backend.access.alter_quotas(wanted, done, call.connection.account)


def _reply(
    call: Request, request: AlterClientQuotasRequest, outcomes: Iterable[tuple[ErrorCode, str | None]]
) -> Iterator[None]:
    entries = yield from collected(
        _row(entry, *outcome) for entry, outcome in zip(request.entries, outcomes, strict=True)
    )
    call.reply(AlterClientQuotasResponse(throttle_time_ms=call.charge_time(), entries=entries))


def _row(
    entry: AlterClientQuotasRequestEntry, code: ErrorCode, message: str | None
) -> AlterClientQuotasResponseEntry:
    entity = tuple(
        AlterClientQuotasResponseEntityPart(entity_type=part.entity_type, entity_name=part.entity_name)
        for part in entry.entity
    )
    return AlterClientQuotasResponseEntry(error_code=code, error_message=message, entity=entity)
