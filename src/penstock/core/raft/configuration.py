"""Who takes part: voters, learners, majorities, and one change at a time."""

from typing import TypeAlias

from msgspec import Struct

from penstock.core.raft.identity import Index, Member


class Configuration(Struct, frozen=True):
    """The members of a quorum. Learners get the log but are not counted."""

    voters: tuple[Member, ...] = ()
    learners: tuple[Member, ...] = ()

    @property
    def members(self) -> tuple[Member, ...]:
        return self.voters + self.learners

    @property
    def majority(self) -> int:
        """How many voters it takes; without voters nothing is ever enough."""
        return len(self.voters) // 2 + 1

    def agreed(self, values: dict[Member, int]) -> int:
        """The highest value that a majority of the voters has reached; who is not in `values` has 0."""
        ranked = sorted((values.get(voter, 0) for voter in self.voters), reverse=True)
        return ranked[self.majority - 1] if ranked else 0


NOBODY = Configuration()


class ConfigurationAt(Struct, frozen=True):
    """A configuration, and the index of the entry that brought it."""

    index: Index
    configuration: Configuration


class AddLearner(Struct, frozen=True):
    """Let a newcomer receive the log without a vote."""

    member: Member


class PromoteLearner(Struct, frozen=True):
    """Give a learner its vote."""

    member: Member


class RemoveMember(Struct, frozen=True):
    """Let a voter or learner go."""

    member: Member


# Majorities of two configurations that differ in one voter always have a member in
# common. That is all the safety of these changes, so there is no change of two at once.
Change: TypeAlias = AddLearner | PromoteLearner | RemoveMember


def changed(configuration: Configuration, change: Change) -> Configuration:
    """The configuration after a change that is possible."""
    member, voters, learners = change.member, configuration.voters, configuration.learners
    if isinstance(change, AddLearner):
        return Configuration(voters, (*learners, member))
    others = tuple(learner for learner in learners if learner != member)
    if isinstance(change, PromoteLearner):
        return Configuration((*voters, member), others)
    return Configuration(tuple(voter for voter in voters if voter != member), others)
