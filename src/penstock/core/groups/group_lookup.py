"""Groups of either type by their id."""

from typing import TypeAlias

from penstock.core.groups.classic_group import ClassicGroup
from penstock.core.groups.classic_protocol import ClassicGroups
from penstock.core.groups.commands import ListedGroup
from penstock.core.groups.consumer_group import ConsumerGroup
from penstock.core.groups.consumer_protocol import ConsumerGroups
from penstock.core.groups.facts import GroupDeleted, GroupImage
from penstock.core.groups.outcome import GroupOutcome

AnyGroup: TypeAlias = ClassicGroup | ConsumerGroup


class GroupLookup:
    """Finds, lists and deletes groups, whatever their type."""

    def __init__(self, image: GroupImage, classic: ClassicGroups, consumers: ConsumerGroups) -> None:
        self._image = image
        self._classic = classic
        self._consumers = consumers

    def find(self, group_id: str, outcome: GroupOutcome) -> AnyGroup | None:
        if group_id in self._image.consumers:
            return self._consumers.find(group_id, outcome)
        return self._classic.find(group_id)

    def listed(self) -> list[ListedGroup]:
        """Every group by id."""
        consumers = [self._consumers.listed(group_id) for group_id in self._image.consumers]
        classic = [each for each in self._classic.listed() if each.group_id not in self._image.consumers]
        return sorted(consumers + classic, key=lambda group: group.group_id)

    def delete(self, group_id: str, outcome: GroupOutcome) -> None:
        """Delete what is stored of an empty group but its offsets."""
        stored = self._image.consumers.get(group_id)
        if stored is not None:
            outcome.facts += stored.tombstones(group_id)
            self._consumers.forget(group_id)
        if group_id in self._image.groups:
            outcome.facts.append(GroupDeleted(group_id))
        self._classic.forget(group_id)
