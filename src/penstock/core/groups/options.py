"""What an operator may choose about groups."""

from dataclasses import dataclass


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
    # Ids that were given out and not joined with yet; beyond it the oldest are forgotten, and whoever
    # comes with one asks again. A client that asks for ids in a loop costs no more than this.
    pending_members_max: int = 10_000
    offset_metadata_chars_max: int = 4_096
    offsets_retention_ms: int = 7 * 24 * 60 * 60 * 1_000
    offsets_retention_check_interval_ms: int = 600_000
    # One call of `expire` looks at no more groups than this, so that ten thousand sessions that end
    # together do not hold up the loop; the host calls again while a deadline is due.
    groups_expired_per_turn_max: int = 16
