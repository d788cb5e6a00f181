"""Groups with members that change their type, online.

    upgrade     the first member that joins with ConsumerGroupHeartbeat makes a classic group of consumers
                a consumer group; the members that are there stay, with their partitions, as classic
                members of it (`classic_members`)
    downgrade   when the last member that speaks the new protocol is gone, the others are a classic group
                again, and rebalance

The generation of a classic group becomes the epoch of the consumer group and the other way round, so
that what a member says about itself stays true. `group.consumer.migration.policy` allows both, one or
none; empty groups change their type with whoever joins first.
"""

from penstock.core.groups.classic_group import (
    CONSUMER_PROTOCOL_TYPE,
    ClassicGroup,
    GroupMember,
)
from penstock.core.groups.classic_members import assignment_bytes, fits_record, partitions_by_id
from penstock.core.groups.classic_protocol import ClassicGroups, rebalance
from penstock.core.groups.cluster_topics import ClusterTopics
from penstock.core.groups.commands import GroupState
from penstock.core.groups.consumer_facts import (
    ClassicMember,
    ConsumerMemberStored,
    TargetAssignmentStored,
    TargetEpochStored,
)
from penstock.core.groups.consumer_group import ConsumerGroup, ConsumerMember
from penstock.core.groups.consumer_protocol import ConsumerGroups
from penstock.core.groups.embedded_protocol import read_assignment, read_subscription
from penstock.core.groups.facts import GroupDeleted, GroupImage
from penstock.core.groups.outcome import GroupOutcome, MigrationPolicy
from penstock.core.groups.partition_sets import PartitionSet, partition_set
from penstock.core.model import MILLISECOND, ErrorKind, Instant

UPGRADES = (MigrationPolicy.UPGRADE, MigrationPolicy.BIDIRECTIONAL)
DOWNGRADES = (MigrationPolicy.DOWNGRADE, MigrationPolicy.BIDIRECTIONAL)


class GroupMigration:
    """Makes classic groups consumer groups, and the other way round."""

    def __init__(
        self, image: GroupImage, classic: ClassicGroups, consumers: ConsumerGroups, topics: ClusterTopics
    ) -> None:
        self._image = image
        self._classic = classic
        self._consumers = consumers
        self._topics = topics

    def upgrade(self, classic: ClassicGroup, instance_id: str | None, outcome: GroupOutcome) -> str | None:
        """Make a classic group a consumer group for a member that joins; returns why that cannot be."""
        options = outcome.options.consumer
        if classic.is_empty:
            self._forget_classic(classic, outcome)
            return None
        if options.migration not in UPGRADES:
            return f"group {classic.group_id} is a classic group with members, and may not be upgraded"
        if classic.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return f"group {classic.group_id} is of type {classic.protocol_type}, not of consumers"
        # With the one that joins, unless it takes the place of a static member.
        if len(classic.members) + (instance_id not in classic.instances) > options.members_max:
            return f"group {classic.group_id} would have more than {options.members_max} members"
        if any(not fits_record(member.protocols, outcome.options) for member in classic.members.values()):
            return f"group {classic.group_id} has members whose subscription is too large"
        group = self._consumer_group_of(classic)
        if group is None:
            return f"group {classic.group_id} has members whose subscription cannot be read"
        for on_reply in (*classic.joiner.values(), *classic.syncing.values()):
            outcome.refuse(on_reply, ErrorKind.REBALANCE_IN_PROGRESS, "the group changes its protocol")
        self._forget_classic(classic, outcome)
        self._store(group, outcome)
        self._consumers.keep(group)
        return None

    def downgrade_if_due(self, group: ConsumerGroup, outcome: GroupOutcome) -> bool:
        """Make a consumer group with classic members alone a classic group."""
        options = outcome.options
        members = group.members.values()
        if not group.speaks_classic or not members:
            return False
        if options.consumer.migration not in DOWNGRADES or len(members) > options.group_members_max:
            return False
        classic = self._classic_group_of(group, outcome)
        if classic.stored_bytes() > options.record_bytes_max:
            return False
        self.forget_consumers(group.group_id, outcome)
        outcome.facts.append(classic.to_fact())
        self._classic.keep(classic)
        rebalance(classic, outcome, "no member speaks the consumer protocol any more")
        return True

    def forget_consumers(self, group_id: str, outcome: GroupOutcome) -> None:
        """Delete what is stored of a consumer group."""
        outcome.facts += self._image.consumers[group_id].tombstones(group_id)
        self._consumers.forget(group_id)

    def _forget_classic(self, classic: ClassicGroup, outcome: GroupOutcome) -> None:
        if classic.group_id in self._image.groups:
            outcome.facts.append(GroupDeleted(classic.group_id))
        self._classic.forget(classic.group_id)

    def _consumer_group_of(self, classic: ClassicGroup) -> ConsumerGroup | None:
        group = ConsumerGroup(classic.group_id)
        group.epoch = group.target_epoch = classic.generation
        for each in classic.members.values():
            if each.is_new:
                # It has no generation and no partitions yet; it joins again, as a member of the new group.
                continue
            member = self._consumer_member(group, each, classic.protocol)
            if member is None:
                return None
            group.target[each.member_id] = member.assigned
            group.add(member)
        return group

    def _consumer_member(
        self, group: ConsumerGroup, classic: GroupMember, protocol: str | None
    ) -> ConsumerMember | None:
        metadata = classic.metadata_for(protocol) or classic.protocols[0].metadata
        subscription, assigned = read_subscription(metadata), read_assignment(classic.assignment)
        if subscription is None or assigned is None:
            return None
        # In the middle of a rebalance there is no assignment: what it said it has is what it may read.
        partitions = partitions_by_id(assigned or subscription.owned, self._topics)
        stored = ConsumerMemberStored(
            group.group_id,
            classic.member_id,
            classic.instance_id,
            subscription.rack_id,
            classic.client_id,
            classic.client_host,
            tuple(sorted(set(subscription.topics))),
            rebalance_timeout_ms=classic.rebalance_timeout_ms,
            classic=ClassicMember(classic.session_timeout_ms, classic.protocols),
        )
        member = ConsumerMember(stored, group.epoch, group.epoch, assigned=_unowned(group, partitions))
        # A parked request stood for its heartbeats; it has a full session to come back.
        member.session_deadline = classic.session_deadline or Instant(0)
        return member

    def _store(self, group: ConsumerGroup, outcome: GroupOutcome) -> None:
        for member_id, member in group.members.items():
            classic = member.stored.classic
            assert classic is not None
            member.session_deadline = outcome.wake(group.group_id, classic.session_timeout_ms)
            outcome.facts += (
                member.stored,
                TargetAssignmentStored(group.group_id, member_id, group.target[member_id]),
                member.current(),
            )
        outcome.facts += (group.to_fact(), TargetEpochStored(group.group_id, group.target_epoch))

    def _classic_group_of(self, group: ConsumerGroup, outcome: GroupOutcome) -> ClassicGroup:
        classic = ClassicGroup(group.group_id)
        # What its members that are up to date call their generation.
        classic.generation = group.target_epoch
        classic.protocol_type = CONSUMER_PROTOCOL_TYPE
        for member_id, member in group.members.items():
            stored, spoken = member.stored, member.stored.classic
            assert spoken is not None
            deadline = Instant(outcome.now.instant + spoken.session_timeout_ms * MILLISECOND)
            classic.add(
                GroupMember(
                    member_id,
                    stored.instance_id,
                    stored.client_id,
                    stored.client_host,
                    stored.rebalance_timeout_ms,
                    spoken.session_timeout_ms,
                    spoken.protocols,
                    assignment_bytes(member, self._topics),
                    session_deadline=deadline,
                )
            )
        classic.protocol = classic.selector.winner(classic.members)
        classic.leader = next(iter(classic.members))
        classic.state, classic.state_since = GroupState.STABLE, outcome.now.wall
        classic.note_subscriptions()
        return classic


def _unowned(group: ConsumerGroup, partitions: PartitionSet) -> PartitionSet:
    """Of what a member says it has, what no other has: a partition has one owner."""
    return partition_set(
        (topic_id, [index for index in sorted(indexes) if group.owner_of(topic_id, index) is None])
        for topic_id, indexes in partitions.items()
    )
