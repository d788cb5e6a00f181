"""Consumer groups (KIP-848) that are wrong in one way each: faults of their coordinator.

As in `planted_faults`, which runs them.
"""

from dataclasses import replace

import pytest

from penstock.core.groups import consumer_protocol
from penstock.core.groups.commands import ConsumerGroupHeartbeat
from penstock.core.groups.consumer_facts import (
    ConsumerGroupStored,
    CurrentAssignmentStored,
    MemberState,
    StoredConsumerGroup,
    StoredFact,
    TargetEpochStored,
)
from penstock.core.groups.consumer_group import (
    LEAVE_STATIC_EPOCH,
    ConsumerGroup,
    ConsumerMember,
    reconciled,
)
from penstock.core.groups.outcome import GroupOutcome
from penstock.core.model import SECOND, Instant

Patch = pytest.MonkeyPatch


def partitions_are_given_before_they_are_given_up(patch: Patch) -> None:
    patch.setattr(ConsumerGroup, "owner_of", lambda *_: None)


def revocations_are_not_waited_for(patch: Patch) -> None:
    """Whatever a heartbeat says, it counts as one that names no partition."""

    def reconcile_at_once(
        group: ConsumerGroup, member: ConsumerMember, _: object
    ) -> CurrentAssignmentStored | None:
        return reconciled(group, member, {})

    patch.setattr(consumer_protocol, "reconciled", reconcile_at_once)


def member_epochs_are_not_checked_on_commit(patch: Patch) -> None:
    patch.setattr(ConsumerGroup, "commit_error_kind", lambda *_: None)


def revocations_keep_the_member_epoch(patch: Patch) -> None:
    """What was sent before is accepted after."""
    check = ConsumerGroup.member_error_kind

    def check_roughly(self: ConsumerGroup, member_id: str, instance_id: str | None, epoch: int) -> object:
        member = self.members.get(member_id)
        is_near = member is not None and epoch >= member.previous_epoch
        return check(self, member_id, instance_id, member.epoch if member and is_near else epoch)

    patch.setattr(ConsumerGroup, "member_error_kind", check_roughly)


def sessions_never_end(patch: Patch) -> None:
    def prolong_sessions(group: ConsumerGroup, outcome: GroupOutcome) -> None:
        for member in group.members.values():
            member.session_deadline = Instant(outcome.now.instant + 3_600 * SECOND)

    patch.setattr(consumer_protocol, "_end_sessions", prolong_sessions)


def group_epochs_are_not_stored(patch: Patch) -> None:
    """A new coordinator begins anew."""
    store = StoredConsumerGroup.store

    def store_without_epochs(self: StoredConsumerGroup, fact: StoredFact) -> None:
        if isinstance(fact, ConsumerGroupStored | TargetEpochStored):
            fact = replace(fact, epoch=0)
        store(self, fact)

    patch.setattr(StoredConsumerGroup, "store", store_without_epochs)


def current_assignments_are_not_stored(patch: Patch) -> None:
    """A new coordinator takes every partition for free."""
    store = StoredConsumerGroup.store

    def store_without_assignment(self: StoredConsumerGroup, fact: StoredFact) -> None:
        if isinstance(fact, CurrentAssignmentStored):
            fact = replace(fact, assigned={}, revoking={}, state=MemberState.STABLE)
        store(self, fact)

    patch.setattr(StoredConsumerGroup, "store", store_without_assignment)


def heartbeats_of_old_epochs_are_accepted(patch: Patch) -> None:
    patch.setattr(consumer_protocol, "_lost_a_response", lambda *_: True)


def static_members_replace_each_other(patch: Patch) -> None:
    """Whoever comes with an instance id takes the place of its holder, alive or not."""
    rejoin = consumer_protocol._rejoin_static

    def rejoin_at_once(
        group: ConsumerGroup, old: ConsumerMember, command: ConsumerGroupHeartbeat, outcome: GroupOutcome
    ) -> object:
        old.epoch = LEAVE_STATIC_EPOCH
        return rejoin(group, old, command, outcome)

    patch.setattr(consumer_protocol, "_rejoin_static", rejoin_at_once)
