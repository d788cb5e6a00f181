"""AlterClientQuotas: refused, because nothing would be limited."""

from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntityPart,
    AlterClientQuotasResponseEntry,
)
from penstock.security import AclOperation
from penstock.server.kafka.request import Request
from penstock.server.kafka.response_rows import CLUSTER
from penstock.server.kafka.router import routes


@routes.handles(AlterClientQuotasRequest)
def alter_client_quotas(request: AlterClientQuotasRequest, call: Request) -> None:
    code, message = ErrorCode.INVALID_REQUEST, "quotas are not available yet"
    if not call.authorize(AclOperation.ALTER_CONFIGS, CLUSTER):
        code, message = (
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            "the caller may not alter the cluster's configs",
        )
    call.reply(
        AlterClientQuotasResponse(
            throttle_time_ms=call.charge_time(),
            entries=tuple(
                AlterClientQuotasResponseEntry(
                    error_code=code,
                    error_message=message,
                    entity=tuple(
                        AlterClientQuotasResponseEntityPart(
                            entity_type=part.entity_type, entity_name=part.entity_name
                        )
                        for part in entry.entity
                    ),
                )
                for entry in request.entries
            ),
        )
    )
