"""Share sessions (KIP-932): which partitions a member consumes over a connection.

    epoch 0                   a new session of the partitions named
    epoch n, the next one     the session's partitions, plus those named, less those forgotten
    epoch -1                  the session ends, and what the member has leased is released

A session belongs to its connection and ends with it. Without one, or with another epoch, a member begins a
new one: nothing is lost, because leases are the member's and not the session's. The last request of a session
releases those that the session got, and no others: it may come late, when the member has another session.
"""

from collections import deque
from uuid import UUID

from penstock.core.protocol import ErrorCode

FIRST_EPOCH, FINAL_EPOCH = 0, -1
EPOCH_MAX = 2**31 - 1
# Members that use one connection, and partitions of one of them.
SESSIONS_MAX = 100
PARTITIONS_MAX = 1_000
# Responses whose leases a session remembers: those of older ones end by themselves.
LEASES_MAX = 1_000


class ShareSession:
    """What a member consumes here, and the epoch of its next request."""

    __slots__ = ("epoch", "partitions", "tokens")

    def __init__(self) -> None:
        self.epoch = 1
        self.partitions: dict[tuple[UUID, int], None] = {}
        # Of the leases that it got.
        self.tokens: deque[int] = deque(maxlen=LEASES_MAX)

    def advance(self) -> None:
        self.epoch = 1 if self.epoch == EPOCH_MAX else self.epoch + 1


def take_session(
    sessions: dict[tuple[str, str], ShareSession], key: tuple[str, str], epoch: int
) -> ShareSession | ErrorCode:
    """The session of a request with this epoch, which counts; the last request ends it."""
    if epoch == FIRST_EPOCH:
        if key not in sessions and len(sessions) >= SESSIONS_MAX:
            return ErrorCode.SHARE_SESSION_LIMIT_REACHED
        session = sessions[key] = ShareSession()
        return session
    found = sessions.get(key)
    if found is None:
        return ErrorCode.SHARE_SESSION_NOT_FOUND
    if epoch == FINAL_EPOCH:
        return sessions.pop(key)
    if epoch != found.epoch:
        return ErrorCode.INVALID_SHARE_SESSION_EPOCH
    found.advance()
    return found
