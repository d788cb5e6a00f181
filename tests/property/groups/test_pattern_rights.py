"""Members with patterns, whose rights change while topics come, members leave and coordinators change."""

import random
import re

import pytest

from penstock.core.groups import TopicRights
from tests.property.groups.held import check_counts
from tests.unit.core.groups.consumer_driver import ConsumerDriver, Member, Topics

NAMES = tuple(f"t{number}" for number in range(6))
PATTERNS = ("t.*", "t[0-2]", "t[2-5]")
USERS = ("alice", "bob", "carol")
CHANGES = ("join", "beat", "beat", "beat", "leave", "topic", "rights", "fail over")
MEMBERS_MAX = 5


class World:
    """A group, and who may see what."""

    def __init__(self, seed: int) -> None:
        self._generator = random.Random(seed)
        self.driver = ConsumerDriver(topics=Topics(t0=2, t1=1))
        # Each with its user and pattern.
        self.members: dict[str, tuple[Member, str, str]] = {}
        self._joined = 0
        self._version = 0
        self._seen: dict[str, frozenset[str]] = {}
        for user in USERS:
            self._change_rights(user)

    def change(self) -> None:
        choose = self._generator.choice
        member_id = choose(sorted(self.members)) if self.members else ""
        match choose(CHANGES):
            case "join" if len(self.members) < MEMBERS_MAX:
                self._join(choose(USERS), choose(PATTERNS))
            case "beat" if member_id:
                self._beat(member_id)
            case "leave" if member_id:
                self.members.pop(member_id)[0].leave()
            case "topic":
                self.driver.change_topic(choose(NAMES), self._generator.randrange(1, 4))
            case "rights":
                self._change_rights(choose(USERS))
            case "fail over" if self._generator.randrange(4) == 0:
                self.driver = self.driver.failed_over()
                for member, _, _ in self.members.values():
                    member.driver = self.driver
            case _:
                pass
        check_counts(self.driver.coordinator)

    def come_to_rest(self) -> None:
        for _ in range(12):
            for member_id in self.members:
                self._beat(member_id)
        if self.members:
            self.driver.reconcile(*[member for member, _, _ in self.members.values()])

    def visible_to(self, member_id: str) -> set[tuple[str, int]]:
        """The partitions that a member may get."""
        _, user, pattern = self.members[member_id]
        return {
            (name, at)
            for name, topic in self.driver.cluster.topics.items()
            if re.fullmatch(pattern, name) and name in self._seen[user]
            for at in range(topic.partitions)
        }

    def _join(self, user: str, pattern: str) -> None:
        self._joined += 1
        member_id, rights = f"m{self._joined}", self._rights(user)
        member = self.driver.member(member_id, topics=None, pattern=pattern, rights=rights)
        self.members[member_id] = member, user, pattern

    def _beat(self, member_id: str) -> None:
        member, user, _ = self.members[member_id]
        member.rights = self._rights(user)
        member.beat()

    def _change_rights(self, user: str) -> None:
        count = self._generator.randrange(len(NAMES) + 1)
        self._seen[user] = frozenset(self._generator.sample(NAMES, count))
        self._version += 1

    def _rights(self, user: str) -> TopicRights:
        return TopicRights((self._version, user), lambda topic: topic in self._seen[user])


@pytest.mark.parametrize("seed", range(25))
def test_in_the_end_everyone_has_what_it_may_see_and_nothing_is_left_over(seed: int) -> None:
    world = World(seed)
    for _ in range(80):
        world.change()

    world.come_to_rest()

    wanted: set[tuple[str, int]] = set()
    for member_id, (member, _, _) in world.members.items():
        assert set(member.partitions) <= world.visible_to(member_id)
        wanted |= world.visible_to(member_id)
    assert {place for member, _, _ in world.members.values() for place in member.partitions} == wanted
