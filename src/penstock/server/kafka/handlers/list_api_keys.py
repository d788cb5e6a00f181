"""ListApiKeys: which secrets stand for users; never what they are. An API of Penstock, not of Kafka."""

from collections.abc import Iterator

from penstock.core.metadata.access import ApiKey
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.list_api_keys import (
    ListApiKeysRequest,
    ListApiKeysResponse,
    ListApiKeysResponseKey,
)
from penstock.security import AclOperation
from penstock.server.kafka.acl_rows import NOT_DESCRIBED
from penstock.server.kafka.request import Request
from penstock.server.kafka.response_rows import CLUSTER
from penstock.server.kafka.router import routes


@routes.handles(ListApiKeysRequest)
def list_api_keys(request: ListApiKeysRequest, call: Request) -> Iterator[None]:
    is_allowed = call.authorize(AclOperation.DESCRIBE, CLUSTER)
    keys: list[ListApiKeysResponseKey] = []
    for api_key in call.backend.access.api_keys() if is_allowed else ():
        if request.user in (None, api_key.user):
            keys.append(_row(api_key, call))
        yield
    call.reply(
        ListApiKeysResponse(
            throttle_time_ms=call.charge_time(),
            error_code=ErrorCode.NONE if is_allowed else ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            error_message=None if is_allowed else NOT_DESCRIBED,
            keys=tuple(keys),
        )
    )


def _row(api_key: ApiKey, call: Request) -> ListApiKeysResponseKey:
    return ListApiKeysResponseKey(
        id=api_key.id,
        user=api_key.user,
        created_ms=api_key.created,
        expires_ms=api_key.expires,
        last_use_ms=call.backend.access.key_uses.last(api_key.id),
        scope=api_key.scope,
        description=api_key.description,
    )
