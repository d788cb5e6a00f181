"""The broker that coordinates a group or a transactional id, for requests that librdkafka does not send."""

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any, NamedTuple

from penstock.client.connection import BrokerConnection, connect
from penstock.client.endpoint import ClientError, Endpoint
from penstock.core.model import SECOND
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.find_coordinator import FindCoordinatorRequest
from penstock.runtime.loop import MachineClock

GROUP, TRANSACTION = 0, 1
# FindCoordinator, many keys at once.
BATCHES_SINCE = 4
PAUSE_SECONDS = 0.1
# A coordinator that starts, or moves: it has done nothing.
COORDINATOR_CHANGES = frozenset({
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
})  # fmt: skip


class FoundCoordinator(NamedTuple):
    """What a broker says of a key: its coordinator, or why there is none."""

    error_code: int
    node_id: int
    host: str
    port: int


class Deadline:
    """The end of patience with a coordinator."""

    def __init__(self, seconds: float) -> None:
        self._clock = MachineClock()
        self._at = self._clock.now() + int(seconds * SECOND)

    def is_over(self) -> bool:
        return self._clock.now() > self._at


def find_coordinator(connection: BrokerConnection, key_type: int, key: str) -> FoundCoordinator:
    """Ask a broker once."""
    has_rows = connection.version(FindCoordinatorRequest) >= BATCHES_SINCE
    answer = connection.ask(
        FindCoordinatorRequest(key_type=key_type, coordinator_keys=(key,))
        if has_rows
        else FindCoordinatorRequest(key_type=key_type, key=key)
    )
    found: Any = answer.coordinators[0] if has_rows else answer
    return FoundCoordinator(found.error_code, found.node_id, found.host, found.port)


@contextmanager
def coordinator(
    endpoint: Endpoint, key_type: int, key: str, what: str, deadline: Deadline
) -> Iterator[tuple[int, BrokerConnection]]:
    """Wait for the key's coordinator; its node id, and a connection to it."""
    with closing(connect(endpoint)) as first:
        while True:
            found = find_coordinator(first, key_type, key)
            if found.error_code not in COORDINATOR_CHANGES or deadline.is_over():
                break
            time.sleep(PAUSE_SECONDS)
    expect(what, found.error_code)
    with closing(first.sibling((found.host, found.port))) as connection:
        yield found.node_id, connection


def expect(what: str, code: int) -> None:
    """ClientError if a broker returned an error."""
    if code != ErrorCode.NONE:
        raise ClientError(f"{what}: {error_name(code).lower().replace('_', ' ')}")


def error_name(code: int) -> str:
    """The name of an error code; newer brokers have more of them than we know."""
    return ErrorCode(code).name if code in ErrorCode._value2member_map_ else f"error {code}"
