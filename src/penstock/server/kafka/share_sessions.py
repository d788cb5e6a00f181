"""Share sessions (KIP-932): which partitions a member consumes over a connection.

    epoch 0                   a new session of the partitions named
    epoch n, the next one     the session's partitions, plus those named, less those forgotten
    epoch -1                  the session ends, and what the member has leased is released

A session belongs to its connection and ends with it. Without one, or with another epoch, a member begins a
new one: nothing is lost, because leases are the member's and not the session's. The last request of a session
releases those that the session got, and no others: it may come late, when the member has another session.

The sessions of a node are bounded by their number and their partitions, as are those of one address. Where
there is no room, those that hold the most lose a session (see `ClientShares`) and begin a new one, or a
member gets SHARE_SESSION_LIMIT_REACHED and tries again.
"""

from collections import deque
from uuid import UUID

from penstock.broker.client_shares import ClientShares, ShareLimits
from penstock.core.protocol import ErrorCode

FIRST_EPOCH, FINAL_EPOCH = 0, -1
EPOCH_MAX = 2**31 - 1
# Members that use one connection, and partitions of one of them.
SESSIONS_MAX = 100
PARTITIONS_MAX = 1_000
# Responses whose leases a session remembers: those of older ones end by themselves.
LEASES_MAX = 1_000
# Of a node; a partition of a session takes about 150 bytes. The number of sessions is Kafka's
# `group.share.max.share.sessions`.
NODE_SESSIONS_MAX = 2_000
NODE_PARTITIONS_MAX = 200_000
CLIENT_PARTITIONS_MAX = 100_000


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


class ShareSessionCache:
    """The share sessions of a node's clients."""

    def __init__(self, sessions_max: int = NODE_SESSIONS_MAX) -> None:
        limits = ShareLimits(sessions_max, NODE_PARTITIONS_MAX, CLIENT_PARTITIONS_MAX)
        self.shares: ClientShares[ShareSessionSlot] = ClientShares(limits, _evict)

    def __len__(self) -> int:
        return len(self.shares)

    def connect(self, client: str) -> "ConnectionShareSessions":
        """The sessions of a new connection from this address."""
        return ConnectionShareSessions(self.shares, client)


class ShareSessionSlot:
    """The place of a member's session, and whose connection it is on."""

    __slots__ = ("key", "owner", "session")

    def __init__(self, owner: "ConnectionShareSessions", key: tuple[str, str]) -> None:
        self.owner = owner
        self.key = key
        self.session = ShareSession()


def _evict(slot: ShareSessionSlot) -> None:
    slot.owner.forget(slot)


class ConnectionShareSessions:
    """The share sessions of one connection, by group and member."""

    __slots__ = ("_client", "_shares", "_slots")

    def __init__(self, shares: ClientShares[ShareSessionSlot], client: str) -> None:
        self._shares = shares
        self._client = client
        self._slots: dict[tuple[str, str], ShareSessionSlot] = {}

    def take(self, key: tuple[str, str], epoch: int) -> ShareSession | ErrorCode:
        """The session of a request with this epoch, which counts; the last request ends it."""
        if epoch == FIRST_EPOCH:
            return self._open(key)
        slot = self._slots.get(key)
        if slot is None:
            return ErrorCode.SHARE_SESSION_NOT_FOUND
        if epoch == FINAL_EPOCH:
            self.end(key)
        elif epoch != slot.session.epoch:
            return ErrorCode.INVALID_SHARE_SESSION_EPOCH
        else:
            slot.session.advance()
            self._shares.touch(self._client, slot)
        return slot.session

    def _open(self, key: tuple[str, str]) -> ShareSession | ErrorCode:
        self.end(key)
        slot = ShareSessionSlot(self, key)
        if len(self._slots) >= SESSIONS_MAX or not self._shares.add(self._client, slot, 1):
            return ErrorCode.SHARE_SESSION_LIMIT_REACHED
        self._slots[key] = slot
        return slot.session

    def resized(self, key: tuple[str, str]) -> bool:
        """Its partitions have changed; returns whether there is room for them, else the session ends."""
        slot = self._slots.get(key)
        if slot is None:
            return True
        if self._shares.resize(self._client, slot, 1 + len(slot.session.partitions)):
            return True
        del self._slots[key]
        return False

    def end(self, key: tuple[str, str]) -> None:
        """Forget the session, if there is one."""
        slot = self._slots.pop(key, None)
        if slot is not None:
            self._shares.remove(self._client, slot)

    def forget(self, slot: ShareSessionSlot) -> None:
        """The session was evicted: its member is told so when it comes back."""
        if self._slots.get(slot.key) is slot:
            del self._slots[slot.key]

    def close(self) -> None:
        """The connection has ended, and its sessions with it."""
        for key in list(self._slots):
            self.end(key)
