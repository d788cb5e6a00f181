"""Client quotas: how much a user, a client id or both may ask of a broker.

A limit is a bucket that fills at its rate, and holds what comes in a second. A request takes what it
cost, also more than there is: then its client is told to wait until nothing is owed any more, and its
connection is not read meanwhile (KIP-219). Records are not sent to a client that owes, on whatever connection
it asks for them, and one response has no more than comes in a second. The limit that counts is the first of
these, as in Kafka:

    user and client id → user with the default client id → user
    → default user and client id → default user with the default client id → default user
    → client id → default client id

A limit of a user counts for all its clients together, one of the default user for each user alone.
"""

from collections import OrderedDict
from typing import NamedTuple, TypeAlias

from penstock.core.ip_address import canonical_address
from penstock.core.metadata import MetadataImage
from penstock.core.metadata.access import (
    CLIENT_ID,
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    IP,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    USER,
    QuotaEntity,
    entity_key,
)
from penstock.core.model import SECOND, Instant
from penstock.security.authorizer import QuotaType
from penstock.security.sessions import name_key

BUCKETS_MAX = 20_000
# Whatever a client owes, it is told to wait so long at most; the rest is still owed then.
THROTTLE_MS_MAX = 30_000
_KEYS = {
    QuotaType.BYTES_IN: PRODUCER_BYTE_RATE,
    QuotaType.BYTES_OUT: CONSUMER_BYTE_RATE,
    QuotaType.REQUEST_NS: REQUEST_PERCENTAGE,
    QuotaType.MUTATIONS: CONTROLLER_MUTATION_RATE,
}
EntityKey: TypeAlias = tuple[tuple[str, bool, str], ...]
DEFAULT_ADDRESS = entity_key(((IP, None),))


class _Limit(NamedTuple):
    """A rate per second, and whom it is shared by."""

    rate: float
    shared_by: tuple[str | None, str | bytes | None]


class _Bucket:
    __slots__ = ("filled_at", "level", "rate")

    def __init__(self, rate: float, now: Instant) -> None:
        self.rate = rate
        self.level = rate
        self.filled_at = now

    def take(self, amount: float, now: Instant) -> int:
        """Take it; returns for how many milliseconds whoever did is to wait."""
        level = self.level + (now - self.filled_at) * self.rate / SECOND
        self.level = min(self.rate, level) - amount
        self.filled_at = now
        if self.level >= 0:
            return 0
        return min(THROTTLE_MS_MAX, 1 + int(-self.level * 1_000 / self.rate))

    def left(self, now: Instant) -> int:
        """How much may be taken at once: what comes in a second, or nothing while something is owed."""
        self.take(0, now)
        return 0 if self.level < 0 else max(1, int(self.rate))


class ClientQuotas:
    """The limits of an image, and what clients have used of them on this broker."""

    def __init__(self) -> None:
        self._image = MetadataImage()
        # By user and the key of a client id, which may be long.
        self._limits: dict[tuple[str, str | bytes, QuotaType], _Limit | None] = {}
        # Entities whose address is not written as addresses are compared: older ones.
        self._other_names: dict[str, EntityKey] = {}
        self._buckets: OrderedDict[tuple[object, ...], _Bucket] = OrderedDict()
        self.is_empty = True

    def on_metadata(self, image: MetadataImage) -> None:
        """Take over the limits of an image."""
        before, self._image = self._image, image
        if image.quotas is before.quotas:
            return
        self._limits.clear()
        self.is_empty = not len(image.quotas)
        for key in before.quotas.keys_missing_in(image.quotas):
            self._other_names.pop(_address_of(key), None)
        for key in image.quotas.keys_changed_since(before.quotas):
            address = _address_of(key)
            if address and key != entity_key(((IP, address),)):
                self._other_names[address] = key

    def charge(self, user: str, client_id: str, cost: QuotaType, amount: float, now: Instant) -> int:
        """Count what a request cost; returns for how many milliseconds its client is to be throttled."""
        bucket = self._bucket_of(user, client_id, cost, now)
        return 0 if bucket is None else bucket.take(amount, now)

    def left(self, user: str, client_id: str, cost: QuotaType, now: Instant) -> int | None:
        """How much a client may have at once: nothing while it owes; None if it has no limit."""
        bucket = self._bucket_of(user, client_id, cost, now)
        return None if bucket is None else bucket.left(now)

    def _bucket_of(self, user: str, client_id: str, cost: QuotaType, now: Instant) -> _Bucket | None:
        if self.is_empty:
            return None
        asked = user, name_key(client_id), cost
        if asked in self._limits:
            limit = self._limits[asked]
        else:
            limit = self._find(user, client_id, cost)
            if len(self._limits) >= BUCKETS_MAX:
                self._limits.clear()
            self._limits[asked] = limit
        return None if limit is None else self._bucket((cost, *limit.shared_by), limit.rate, now)

    def charge_connection(self, host: str, now: Instant) -> int:
        """Count a new connection; returns for how many milliseconds it is not to be served."""
        if self.is_empty:
            return 0
        for key in (entity_key(((IP, host),)), self._other_names.get(host), DEFAULT_ADDRESS):
            values = None if key is None else self._image.quotas.get(key)
            if values is not None and CONNECTION_CREATION_RATE in values:
                return self._bucket((IP, host), values[CONNECTION_CREATION_RATE], now).take(1, now)
        return 0

    def _bucket(self, key: tuple[object, ...], rate: float, now: Instant) -> _Bucket:
        bucket = self._buckets.get(key)
        if bucket is None or bucket.rate != rate:
            bucket = self._buckets[key] = _Bucket(rate, now)
            if len(self._buckets) > BUCKETS_MAX:
                self._buckets.popitem(last=False)
        self._buckets.move_to_end(key)
        return bucket

    def _find(self, user: str, client_id: str, cost: QuotaType) -> _Limit | None:
        """The limit that counts for this client."""
        client = name_key(client_id)
        candidates: tuple[tuple[QuotaEntity, tuple[str | None, str | bytes | None]], ...] = (
            (((CLIENT_ID, client_id), (USER, user)), (user, client)),
            (((CLIENT_ID, None), (USER, user)), (user, client)),
            (((USER, user),), (user, None)),
            (((CLIENT_ID, client_id), (USER, None)), (user, client)),
            (((CLIENT_ID, None), (USER, None)), (user, client)),
            (((USER, None),), (user, None)),
            (((CLIENT_ID, client_id),), (None, client)),
            (((CLIENT_ID, None),), (None, client)),
        )
        for entity, shared_by in candidates:
            values = self._image.quotas.get(entity_key(entity))
            if values is not None and (value := values.get(_KEYS[cost])) is not None:
                # Percent of one processor's time.
                rate = value * SECOND / 100 if cost is QuotaType.REQUEST_NS else value
                return _Limit(rate, shared_by)
        return None


def _address_of(key: EntityKey) -> str:
    """The address that an entity is, as addresses are compared; nothing if it is something else."""
    kind, _, name = key[0]
    return canonical_address(name) if kind == IP else ""
