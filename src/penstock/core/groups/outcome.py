"""The result of one step of the coordinator, filled while the step is decided."""

import enum
import heapq
from collections.abc import Callable
from dataclasses import field
from typing import NamedTuple, TypeAlias

from penstock.core.groups.commands import NO_OWN_TIMEOUT, GroupType, OnReply, Reply
from penstock.core.groups.facts import Fact
from penstock.core.model import MILLISECOND, ApiError, ErrorKind, Instant, Now, TopicId
from penstock.core.values import dataclass

# A member that asks for a short session is told to send this many heartbeats in it.
BEATS_PER_SESSION = 3
# So many checks that are out of date are kept.
STALE_CHECKS_MAX = 1_000
# Members that are removed in one step are named in the log up to so many.
REMOVALS_NAMED_MAX = 10


NO_MEMORY = ApiError(
    ErrorKind.GROUP_FULL, "the node has no memory left for members, or for those of this host"
)


class MigrationPolicy(enum.Enum):
    """Whether a group with members may change between the classic and the consumer protocol."""

    BIDIRECTIONAL = "bidirectional"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    DISABLED = "disabled"


class ConsumerGroupTimeouts(NamedTuple):
    """The timeouts of one consumer or share group."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 500

    def heartbeat_ms(self, session_ms: int) -> int:
        """How often a member with such a session shall be heard of."""
        return min(self.heartbeat_interval_ms, max(1, session_ms // BEATS_PER_SESSION))


def default_timeouts(_: str) -> ConsumerGroupTimeouts:
    return ConsumerGroupTimeouts()


@dataclass(frozen=True, slots=True)
class ConsumerGroupOptions:
    """Limits of consumer groups (KIP-848)."""

    members_max: int = 2**31 - 1
    # The first one is for members that name none.
    assignors: tuple[str, ...] = ("uniform", "range")
    migration: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    # By group id: groups have configuration of their own.
    timeouts: Callable[[str], ConsumerGroupTimeouts] = default_timeouts
    # A target assignment with more to do than this, in partitions, is computed in several turns.
    assigned_per_turn_max: int = 4_000


def default_share_timeouts(_: str) -> ConsumerGroupTimeouts:
    return ConsumerGroupTimeouts(45_000, 5_000)


@dataclass(frozen=True, slots=True)
class ShareGroupOptions:
    """Limits of share groups (KIP-932)."""

    members_max: int = 200
    # By group id: groups have configuration of their own.
    timeouts: Callable[[str], ConsumerGroupTimeouts] = default_share_timeouts


def _always() -> bool:
    return True


def _no_limit() -> int:
    return 2**31 - 1


def _always_for(_host: str, _size_bytes: int) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class GroupOptions:
    """Limits and delays of one group coordinator."""

    session_timeout_ms_min: int = 6_000
    session_timeout_ms_max: int = 1_800_000
    initial_rebalance_delay_ms: int = 100
    group_members_max: int = 2**31 - 1
    # How long a JoinGroup of a member that does not know its id yet may stay parked: it cannot
    # send heartbeats, and a client that gave up would otherwise stay in the group for ever.
    new_member_join_timeout_ms: int = 300_000
    # Groups without members and positions are deleted when offsets are looked at next; beyond so many bytes
    # of them the oldest at once, so that whoever makes groups in a loop keeps none.
    emptied_bytes_max: int = 1 << 20
    # Ids that were given out and not joined with yet; beyond it the oldest are forgotten, and a client
    # that joins with one asks again. A client that asks for ids in a loop costs no more than this.
    pending_members_max: int = 10_000
    # How long such an id is good for at most; a member that knows its own is waited for as its session says.
    given_id_ms_max: int = 60_000
    # Clients have a handful.
    protocols_max: int = 100
    offset_metadata_chars_max: int = 4_096
    # Positions that a transaction may commit in a coordinator's groups: its end decides on all at once.
    transaction_positions_max: int = 5_000
    # Whether there is memory for positions that groups did not have before.
    has_room: Callable[[], bool] = _always
    # How much metadata a position may get now, by the memory that is left for it.
    metadata_room: Callable[[], int] = _no_limit
    # A member that sends no more about itself, some hundred topics, is refused last, and never once it is
    # in the group.
    small_metadata_bytes: int = 4_096
    # Whether there is memory for so many bytes of a member, or of a group, whose client has this address.
    has_member_room: Callable[[str, int], bool] = _always_for
    # And of a member of a share group, which has less: such groups may be kept without members.
    has_share_room: Callable[[str, int], bool] = _always_for
    # A classic group is one record, and so is a member of a consumer group. It must fit into a batch, or
    # the log refuses it, and every group of the partition waits until its coordinator has started over.
    record_bytes_max: int = 1_000_000
    offsets_retention_ms: int = 7 * 24 * 60 * 60 * 1_000
    offsets_retention_check_interval_ms: int = 600_000
    # One call of `expire` checks no more groups than this, so that ten thousand sessions that end
    # together do not block the loop; the host calls again while a deadline is due.
    groups_expired_per_turn_max: int = 16
    # And of one group no more members than this.
    members_expired_per_turn_max: int = 250
    consumer: ConsumerGroupOptions = field(default_factory=ConsumerGroupOptions)
    share: ShareGroupOptions = field(default_factory=ShareGroupOptions)

    def session_problem(self, own_ms: int) -> ApiError | None:
        """Why a member cannot have this session timeout."""
        least, most = self.session_timeout_ms_min, self.session_timeout_ms_max
        if own_ms == NO_OWN_TIMEOUT or least <= own_ms <= most:
            return None
        return ApiError(ErrorKind.INVALID_SESSION_TIMEOUT, f"{own_ms} ms is not from {least} to {most}")


@dataclass(frozen=True, slots=True)
class RebalanceStarted:
    """A classic group's members have to join again, or a consumer group has another epoch."""

    group_id: str
    generation: int
    reason: str
    type: GroupType = GroupType.CLASSIC


@dataclass(frozen=True, slots=True)
class RebalanceCompleted:
    """Every member's assignment is known, this long after the rebalance started."""

    group_id: str
    generation: int
    members: int
    elapsed_ns: int


@dataclass(frozen=True, slots=True)
class MemberRemoved:
    """A member left or was given up; one of a share group may have leases on records of its topics."""

    group_id: str
    member_id: str
    reason: str
    shared_topics: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MembersRemoved:
    """So many more members of the group left or were given up in the same step."""

    group_id: str
    members: int
    reason: str


@dataclass(frozen=True, slots=True)
class ShareGroupRemoved:
    """A share group was deleted; it may have queues of these topics: id, and how many partitions."""

    group_id: str
    topics: tuple[tuple[TopicId, int], ...]


Event: TypeAlias = RebalanceStarted | RebalanceCompleted | MemberRemoved | MembersRemoved | ShareGroupRemoved


class GroupDeadlines:
    """The earliest time at which each group may have something to do.

    There is one entry per group, not one per member: a heartbeat only moves the member's own
    deadline forward and leaves the entry where it is. When the entry comes up, the group
    says what is really due and when to come back. A hundred members with a session of 30 s
    thus cost one check of the group about every 30 s, however often they send heartbeats.
    """

    __slots__ = ("_heap", "armed")

    def __init__(self) -> None:
        self._heap: list[tuple[Instant, str]] = []
        # The check that counts, by group; other entries of the heap are out of date.
        self.armed: dict[str, Instant] = {}

    def arm(self, group_id: str, at: Instant) -> None:
        """Check the group at `at`, unless an earlier check is planned already."""
        armed = self.armed.get(group_id)
        if armed is None or at < armed:
            self.armed[group_id] = at
            heapq.heappush(self._heap, (at, group_id))

    def disarm(self, group_id: str) -> None:
        """Forget the group. What is out of date is dropped once it is most of the heap: ids may be long."""
        self.armed.pop(group_id, None)
        if len(self._heap) > 2 * len(self.armed) + STALE_CHECKS_MAX:
            self._heap = [(at, group_id) for group_id, at in self.armed.items()]
            heapq.heapify(self._heap)

    def next(self) -> Instant | None:
        """When the next check is; it may turn out that nothing is due yet."""
        heap, armed = self._heap, self.armed
        while heap:
            at, group_id = heap[0]
            if armed.get(group_id) == at:
                return at
            # An earlier check has been planned after this entry was made.
            heapq.heappop(heap)
        return None

    def pop(self, now: Instant) -> str | None:
        """A group whose check is due; the caller arms it again."""
        at = self.next()
        if at is None or at > now:
            return None
        _, group_id = heapq.heappop(self._heap)
        del self.armed[group_id]
        return group_id


class GroupOutcome:
    """What becomes true, whom to reply to once it is durable, and what to log.

    The counterpart of `Decision` where one command may lead to no reply or to many: the
    coordinator runtime appends `facts`, applies them, and calls the callbacks of `replies` when
    the log end it saw is committed. `events` are for logs and metrics alone.
    """

    __slots__ = ("_deadlines", "_removed", "events", "facts", "now", "options", "responses")

    def __init__(self, now: Now, options: GroupOptions, deadlines: GroupDeadlines) -> None:
        self.now = now
        self.options = options
        self._deadlines = deadlines
        self._removed = 0
        self.facts: list[Fact] = []
        self.responses: list[tuple[OnReply, Reply]] = []
        self.events: list[Event] = []

    def refuse(self, on_reply: OnReply, kind: ErrorKind, detail: str = "") -> None:
        self.responses.append((on_reply, ApiError(kind, detail)))

    def report_removed(self, group_id: str, member_id: str, reason: str) -> None:
        """Report that a member is gone: the first ones by name, of the others how many they are."""
        self._removed += 1
        if self._removed <= REMOVALS_NAMED_MAX:
            self.events.append(MemberRemoved(group_id, member_id, reason))
            return
        last = self.events[-1]
        if isinstance(last, MembersRemoved) and last.group_id == group_id:
            self.events[-1] = MembersRemoved(group_id, last.members + 1, last.reason)
        else:
            self.events.append(MembersRemoved(group_id, 1, reason))

    def rest(self, group_id: str) -> None:
        """Check the group no more: nothing is left that time could do."""
        self._deadlines.disarm(group_id)

    def wake(self, group_id: str, delay_ms: int) -> Instant:
        """Check the group `delay_ms` from now; returns that time."""
        at = Instant(self.now.instant + delay_ms * MILLISECOND)
        armed = self._deadlines.armed.get(group_id)
        if armed is None or at < armed:
            self._deadlines.arm(group_id, at)
        return at
