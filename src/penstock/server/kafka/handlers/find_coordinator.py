"""FindCoordinator: which node coordinates a group, a transactional id or a share partition."""

from collections.abc import Iterator

from penstock.broker.coordinator import KEY_CHARS_MAX
from penstock.core.model import ApiError, ErrorKind, NodeId
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    FindCoordinatorResponseCoordinator,
)
from penstock.security import AclOperation
from penstock.server.kafka.errors import code_of, message_of
from penstock.server.kafka.node_addresses import address_of
from penstock.server.kafka.request import Request
from penstock.server.kafka.response_rows import CLUSTER, ResponseRows, may, may_use_id, unique
from penstock.server.kafka.router import routes

GROUP, TRANSACTION, SHARE = 0, 1, 2
SHARE_SINCE = 6
BATCHES_SINCE = 4
NO_NODE = -1
SHARE_KEY_PARTS = 3
Row = FindCoordinatorResponseCoordinator


@routes.handles(FindCoordinatorRequest)
def find_coordinator(request: FindCoordinatorRequest, call: Request) -> Iterator[None]:
    # Each once, however often it is named: a short request must not have an endless response.
    keys = yield from unique(request.coordinator_keys if call.version >= BATCHES_SINCE else (request.key,))
    rows: ResponseRows[Row] = ResponseRows(len(keys), lambda found: _answer(call, found))
    for index, key in enumerate(keys):
        _find(call, request.key_type, key, rows, index)
        yield
    rows.end()


def _find(call: Request, key_type: int, key: str, rows: ResponseRows[Row], index: int) -> None:
    # Before rights: to look for those of a name takes time and memory in proportion to its length.
    code = _too_long(key_type) if len(key) > KEY_CHARS_MAX else _problem(call, key_type, key)
    if code is not ErrorCode.NONE:
        rows.put(index, _nowhere(key, code))
    elif key_type == GROUP:
        call.backend.groups.locate(key, lambda found: rows.put(index, _row(call, key, found)))
    elif key_type == TRANSACTION:
        call.backend.transactions.locate(key, lambda found: rows.put(index, _row(call, key, found)))
    else:
        # Share groups are not served yet: any node will do, so name this one.
        rows.put(index, _row(call, key, call.backend.node.node_id))


def _too_long(key_type: int) -> ErrorCode:
    return ErrorCode.INVALID_GROUP_ID if key_type == GROUP else ErrorCode.INVALID_REQUEST


def _problem(call: Request, key_type: int, key: str) -> ErrorCode:
    if key_type == GROUP:
        allowed = may(call, AclOperation.DESCRIBE, key)
        return ErrorCode.NONE if allowed else ErrorCode.GROUP_AUTHORIZATION_FAILED
    if key_type == TRANSACTION:
        allowed = may_use_id(call, AclOperation.DESCRIBE, key)
        return ErrorCode.NONE if allowed else ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if key_type == SHARE and call.version >= SHARE_SINCE:
        if not call.authorize(AclOperation.CLUSTER_ACTION, CLUSTER):
            return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return ErrorCode.NONE if _is_share_key(key) else ErrorCode.INVALID_REQUEST
    return ErrorCode.INVALID_REQUEST


def _is_share_key(key: str) -> bool:
    """Whether it reads `group:topic id:partition`; the group id may have colons in it."""
    parts = key.rsplit(":", SHARE_KEY_PARTS - 1)
    if len(parts) != SHARE_KEY_PARTS or not parts[0] or not parts[1]:
        return False
    return parts[2].isdecimal()


def _row(call: Request, key: str, found: NodeId | ApiError) -> Row:
    if isinstance(found, ApiError):
        return _nowhere(key, code_of(found), message_of(found))
    broker = call.backend.controller.image.broker(found)
    address = None if broker is None else address_of(call, broker)
    if address is None:
        return _nowhere(key, code_of(ApiError(ErrorKind.COORDINATOR_NOT_AVAILABLE)))
    return Row(
        key=key,
        node_id=found,
        host=address.host,
        port=address.port,
        error_code=ErrorCode.NONE,
        error_message="",
    )


def _nowhere(key: str, code: ErrorCode, message: str = "") -> Row:
    return Row(key=key, node_id=NO_NODE, host="", port=NO_NODE, error_code=code, error_message=message)


def _answer(call: Request, rows: tuple[Row, ...]) -> None:
    throttle_ms = call.charge_time()
    if call.version >= BATCHES_SINCE:
        call.reply(FindCoordinatorResponse(throttle_time_ms=throttle_ms, coordinators=rows))
        return
    row = rows[0]
    call.reply(
        FindCoordinatorResponse(
            throttle_time_ms=throttle_ms,
            error_code=row.error_code,
            error_message=row.error_message,
            node_id=row.node_id,
            host=row.host,
            port=row.port,
        )
    )
