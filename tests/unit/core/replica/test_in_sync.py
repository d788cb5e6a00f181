"""The high watermark, and which ISR a leader proposes."""

from penstock.core.model import SECOND, BrokerEpoch, Instant, NodeId, Offset
from penstock.core.replica import UNKNOWN_EPOCH, CommittedPartitionState, IsrTracker

LAG_MAX_NS = 10 * SECOND
ME, SECOND_NODE, THIRD = NodeId(1), NodeId(2), NodeId(3)


def nodes(*numbers: int) -> tuple[NodeId, ...]:
    return tuple(NodeId(number) for number in numbers)


class Leader:
    """An `IsrTracker` of node 1 whose log ends where the test says, at the time it says."""

    def __init__(
        self, isr: tuple[int, ...] = (1, 2, 3), *, minimum: int = 1, end: int = 100, watermark: int = 0
    ) -> None:
        self.now = 0
        self.end = end
        self.state = CommittedPartitionState(nodes(1, 2, 3), nodes(*isr), 0, minimum)
        self.isr = IsrTracker(
            ME, self.state, Offset(end), Offset(end), Offset(watermark), Instant(0), LAG_MAX_NS
        )

    @property
    def watermark(self) -> int:
        return self.isr.high_watermark

    def append(self, end: int) -> None:
        self.end = end
        self.isr.advance_own(Offset(end))

    def fetch(self, node: int, position: int, *, synced: int | None = None, epoch: int = 7) -> bool:
        return self.isr.follower_fetched(
            NodeId(node),
            BrokerEpoch(epoch),
            Offset(position),
            Offset(position if synced is None else synced),
            Offset(self.end),
            Instant(self.now),
        )

    def commit(self, *isr: int, minimum: int | None = None) -> bool:
        epoch = self.state.partition_epoch + 1
        self.state = self.state._replace(isr=nodes(*isr), partition_epoch=epoch)
        if minimum is not None:
            self.state = self.state._replace(minimum=minimum)
        return self.isr.assignment_changed(self.state, Instant(self.now))

    def propose(self) -> list[int] | None:
        members = self.isr.proposal(Offset(self.end), Instant(self.now))
        return None if members is None else [member.node_id for member in members]


def test_alone_the_high_watermark_is_the_leaders_own_synced_position() -> None:
    state = CommittedPartitionState(nodes(1), nodes(1), 0, 1)
    insync = IsrTracker(ME, state, Offset(5), Offset(5), Offset(0), Instant(0), LAG_MAX_NS)

    assert insync.high_watermark == 5
    assert insync.is_established
    assert insync.advance_own(Offset(9))
    assert insync.high_watermark == 9
    assert not insync.advance_own(Offset(9))
    assert insync.next_deadline() is None
    assert insync.proposal(Offset(12), Instant(100 * LAG_MAX_NS)) is None


def test_one_replica_cannot_be_below_a_minimum_of_two() -> None:
    state = CommittedPartitionState(nodes(1), nodes(1), 0, 2)
    insync = IsrTracker(ME, state, Offset(5), Offset(5), Offset(0), Instant(0), LAG_MAX_NS)

    assert insync.has_min_isr
    assert insync.high_watermark == 5


def test_the_high_watermark_waits_for_the_slowest_member_of_the_isr() -> None:
    leader = Leader()

    assert not leader.fetch(2, 80)
    assert leader.watermark == 0
    assert leader.fetch(3, 60)
    assert leader.watermark == 60


def test_what_was_fetched_counts_only_when_it_is_synced() -> None:
    leader = Leader(isr=(1, 2))

    leader.fetch(2, 100, synced=40)
    assert leader.watermark == 40

    leader.fetch(2, 100, synced=90)
    assert leader.watermark == 90


def test_nobody_can_have_synced_more_than_it_fetched() -> None:
    leader = Leader(isr=(1, 2))

    leader.fetch(2, 50, synced=70)

    assert leader.watermark == 50


def test_the_leaders_own_sync_counts_too() -> None:
    state = CommittedPartitionState(nodes(1, 2), nodes(1, 2), 0, 1)
    insync = IsrTracker(ME, state, Offset(0), Offset(10), Offset(0), Instant(0), LAG_MAX_NS)

    insync.follower_fetched(SECOND_NODE, BrokerEpoch(7), Offset(30), Offset(30), Offset(30), Instant(0))

    assert insync.high_watermark == 10


def test_a_replica_outside_the_isr_holds_nothing_back() -> None:
    leader = Leader(isr=(1, 2))

    leader.fetch(3, 10)
    leader.fetch(2, 100)

    assert leader.watermark == 100


def test_the_high_watermark_never_goes_back() -> None:
    leader = Leader(isr=(1, 2))
    leader.fetch(2, 90)

    leader.fetch(2, 30)

    assert leader.watermark == 90


def test_a_leader_is_established_once_the_high_watermark_reaches_the_start_of_its_epoch() -> None:
    leader = Leader(isr=(1, 2), end=100, watermark=70)
    established = []

    for position in (70, 99, 100):
        leader.fetch(2, position)
        established.append(leader.isr.is_established)

    assert established == [False, False, True]


def test_the_high_watermark_stands_still_while_the_isr_is_below_the_minimum() -> None:
    leader = Leader(isr=(1,), minimum=2, watermark=50)
    assert leader.watermark == 50

    leader.fetch(2, 100)
    assert leader.propose() == [1, 2]
    assert leader.watermark == 50

    assert leader.commit(1, 2)
    assert leader.watermark == 100


def test_enough_members_must_be_committed_not_only_proposed() -> None:
    leader = Leader(isr=(1,), minimum=2)
    leader.fetch(2, 100)
    enough = [leader.isr.has_min_isr]

    leader.propose()
    enough.append(leader.isr.has_min_isr)
    leader.commit(1, 2)
    enough.append(leader.isr.has_min_isr)

    assert enough == [False, False, True]


def test_a_lower_minimum_counts_at_once_though_the_partition_did_not_change() -> None:
    leader = Leader(isr=(1,), minimum=2)

    moved = leader.isr.assignment_changed(leader.state._replace(minimum=1), Instant(0))

    assert moved
    assert leader.watermark == 100


def test_a_follower_joins_when_it_is_past_the_high_watermark_and_the_start_of_the_epoch() -> None:
    leader = Leader(isr=(1, 2), end=100, watermark=50)

    leader.fetch(3, 99)
    assert leader.propose() is None

    leader.fetch(3, 100)
    assert leader.propose() == [1, 2, 3]


def test_a_follower_that_has_fetched_enough_joins_only_when_it_is_synced() -> None:
    leader = Leader(isr=(1,))

    leader.fetch(2, 100, synced=99)
    assert leader.propose() is None

    leader.fetch(2, 100, synced=100)
    assert leader.propose() == [1, 2]


def test_a_follower_of_unknown_broker_epoch_does_not_join() -> None:
    leader = Leader(isr=(1,))

    leader.fetch(2, 100, epoch=UNKNOWN_EPOCH)

    assert leader.propose() is None


def test_a_proposal_names_the_broker_epochs_in_which_followers_were_in_sync() -> None:
    leader = Leader(isr=(1, 2))
    leader.fetch(3, 100, epoch=31)

    proposal = leader.isr.proposal(Offset(100), Instant(0))

    # Neither the leader itself nor a member that has not fetched yet is known by its epoch.
    assert proposal == ((1, UNKNOWN_EPOCH), (2, UNKNOWN_EPOCH), (3, 31))


def test_one_that_shall_join_counts_from_the_moment_it_is_proposed() -> None:
    leader = Leader(isr=(1,))
    leader.fetch(2, 100)
    assert leader.propose() == [1, 2]

    leader.append(150)
    assert leader.watermark == 100

    assert leader.fetch(2, 120)
    assert leader.watermark == 120


def test_one_that_shall_leave_counts_until_that_is_committed() -> None:
    leader = Leader(isr=(1, 2))
    leader.append(150)
    leader.now = LAG_MAX_NS + 1
    assert leader.propose() == [1]
    assert leader.watermark == 0

    assert not leader.isr.proposal_ended(accepted=True)
    assert leader.watermark == 0

    assert leader.commit(1)
    assert leader.watermark == 150


def test_there_is_one_proposal_at_a_time() -> None:
    leader = Leader(isr=(1,))
    leader.fetch(2, 100)
    assert leader.propose() == [1, 2]

    leader.fetch(3, 100)
    assert leader.propose() is None
    assert leader.isr.next_deadline() is None

    leader.isr.proposal_ended(accepted=True)
    assert leader.propose() is None

    leader.commit(1, 2)
    assert leader.propose() == [1, 2, 3]


def test_one_comes_and_another_goes_in_one_proposal() -> None:
    leader = Leader(isr=(1, 2))
    leader.now = LAG_MAX_NS + 1

    leader.fetch(3, 100)

    assert leader.propose() == [1, 3]


def test_a_refused_newcomer_counts_no_longer_and_is_proposed_again_after_its_next_fetch() -> None:
    leader = Leader(isr=(1,))
    leader.fetch(2, 100)
    leader.propose()
    leader.append(150)

    assert leader.isr.proposal_ended(accepted=False)
    assert leader.watermark == 150
    assert leader.propose() is None

    leader.fetch(2, 150)
    assert leader.propose() == [1, 2]


def test_a_newcomer_whose_proposal_was_not_answered_counts_until_newer_metadata_is_committed() -> None:
    leader = Leader(isr=(1,))
    leader.fetch(2, 100)
    leader.propose()
    leader.append(150)

    assert not leader.isr.proposal_ended(accepted=None)
    assert leader.watermark == 100

    # The same metadata again says nothing about the proposal.
    assert not leader.isr.assignment_changed(leader.state, Instant(0))
    assert leader.watermark == 100

    assert leader.commit(1)
    assert leader.watermark == 150


def test_a_proposal_of_unknown_fate_is_followed_by_another_even_if_nothing_shall_change() -> None:
    leader = Leader(isr=(1,))
    leader.fetch(2, 100)
    leader.propose()
    leader.isr.proposal_ended(accepted=None)
    leader.append(150)
    leader.now = LAG_MAX_NS + 1

    # The newcomer fell behind meanwhile. Whether it was added must be found out all the same.
    assert leader.propose() == [1]

    assert not leader.isr.proposal_ended(accepted=False)
    assert leader.watermark == 100


def test_a_shrink_of_unknown_fate_does_not_count() -> None:
    leader = Leader(isr=(1, 2))
    leader.append(150)
    leader.now = LAG_MAX_NS + 1
    assert leader.propose() == [1]

    assert not leader.isr.proposal_ended(accepted=None)

    assert leader.watermark == 0


def test_an_answer_that_comes_after_newer_metadata_ends_nothing() -> None:
    leader = Leader(isr=(1,))
    leader.fetch(2, 100)
    leader.propose()
    leader.commit(1, 2)

    assert not leader.isr.proposal_ended(accepted=False)

    leader.fetch(3, 100)
    assert leader.propose() == [1, 2, 3]


def test_older_metadata_changes_nothing() -> None:
    leader = Leader(isr=(1, 2))
    older = leader.state
    leader.commit(1, 2, 3)

    assert not leader.isr.assignment_changed(older._replace(isr=nodes(1)), Instant(0))

    assert leader.isr.assignment.isr == nodes(1, 2, 3)


def test_a_member_leaves_when_it_has_not_caught_up_for_long() -> None:
    leader = Leader(isr=(1, 2))
    leader.fetch(2, 100)
    leader.append(150)
    assert leader.isr.next_deadline() == LAG_MAX_NS + 1

    leader.now = LAG_MAX_NS
    assert leader.propose() is None

    leader.now = LAG_MAX_NS + 1
    assert leader.propose() == [1]


def test_silence_is_no_lag_while_there_is_nothing_to_fetch() -> None:
    leader = Leader(isr=(1, 2))
    leader.fetch(2, 100)

    leader.now = 5 * LAG_MAX_NS

    assert leader.propose() is None
    assert leader.isr.next_deadline() == 6 * LAG_MAX_NS + 1


def test_the_time_of_a_follower_that_had_everything_begins_when_there_is_more() -> None:
    leader = Leader(isr=(1, 2))
    leader.fetch(2, 100)

    leader.now = 3 * LAG_MAX_NS
    leader.append(150)
    leader.isr.grew(Offset(100), Instant(leader.now))
    leader.now += LAG_MAX_NS
    assert leader.propose() is None

    leader.now += 1
    assert leader.propose() == [1]


def test_of_a_log_without_records_nobody_lags_behind() -> None:
    leader = Leader(isr=(1, 2), end=0)

    # The other one has thousands of logs to make first, and has not asked yet.
    leader.now = 5 * LAG_MAX_NS
    assert leader.propose() is None

    leader.append(10)
    leader.isr.grew(Offset(0), Instant(leader.now))
    leader.now += LAG_MAX_NS
    assert leader.propose() is None
    leader.now += 1
    assert leader.propose() == [1]


def test_a_follower_that_had_not_synced_everything_gets_no_more_time() -> None:
    leader = Leader(isr=(1, 2))
    leader.fetch(2, 100, synced=90)

    leader.now = LAG_MAX_NS
    leader.append(150)
    leader.isr.grew(Offset(100), Instant(leader.now))
    leader.now += 1

    assert leader.propose() == [1]


def test_a_follower_that_is_never_at_the_end_but_reaches_earlier_ends_keeps_up() -> None:
    leader = Leader(isr=(1, 2))

    # Two steps behind all the time.
    for step in range(2, 40):
        leader.now = step * SECOND
        leader.append(100 + 10 * step)
        leader.fetch(2, 100 + 10 * (step - 2))
        assert leader.propose() is None


def test_a_follower_that_fetches_but_does_not_sync_falls_behind() -> None:
    leader = Leader(isr=(1, 2))

    for step in range(11):
        leader.now = step * SECOND
        leader.append(100 + 10 * step)
        leader.fetch(2, leader.end, synced=50)
    leader.now = LAG_MAX_NS + 1

    assert leader.propose() == [1]


def test_a_follower_that_is_ever_farther_behind_falls_behind() -> None:
    leader = Leader(isr=(1, 2))
    proposals = []

    for step in range(40):
        leader.now = step * SECOND
        leader.append(100 + 10 * step)
        leader.fetch(2, 100 + 2 * step)
        proposals.append(leader.propose())

    assert [1] in proposals


def test_a_new_leader_gives_the_members_of_the_isr_time_to_fetch() -> None:
    leader = Leader(isr=(1, 2, 3))
    leader.now = LAG_MAX_NS
    assert leader.propose() is None

    leader.now += 1
    assert leader.propose() == [1]


def test_a_slow_replica_that_never_caught_up_does_not_join_beside_another_slow_one() -> None:
    leader = Leader(isr=(1, 2), end=100)
    leader.fetch(2, 100)
    leader.append(1000)

    # Past the high watermark, but far from the end: it would have to leave again at once.
    leader.fetch(3, 110)

    assert leader.propose() is None


def test_a_follower_that_restarted_counts_as_new() -> None:
    leader = Leader(isr=(1, 2))
    leader.fetch(2, 90, epoch=7)

    leader.fetch(2, 20, epoch=8)
    assert leader.watermark == 90

    leader.append(150)
    assert not leader.fetch(2, 80, epoch=8)
    assert leader.fetch(2, 95, epoch=8)
    assert leader.watermark == 95


def test_fetches_of_a_followers_former_incarnation_are_ignored() -> None:
    leader = Leader(isr=(1, 2))
    leader.fetch(2, 10, epoch=8)

    assert not leader.fetch(2, 100, epoch=7)

    assert leader.watermark == 10


def test_a_node_that_is_no_replica_is_ignored() -> None:
    leader = Leader(isr=(1,))

    assert not leader.fetch(9, 100)

    assert leader.propose() is None


def test_replicas_that_are_assigned_later_are_followed_and_those_taken_away_forgotten() -> None:
    leader = Leader(isr=(1, 2))
    leader.state = leader.state._replace(replicas=nodes(1, 2, 4))
    leader.commit(1, 2)

    leader.fetch(4, 100)
    leader.fetch(3, 100)

    assert leader.propose() == [1, 2, 4]
    assert leader.isr.follower(THIRD) is None


def test_a_member_that_metadata_brings_unasked_holds_the_high_watermark() -> None:
    leader = Leader(isr=(1,), end=100)

    leader.commit(1, 2)
    leader.append(150)

    assert leader.watermark == 100
