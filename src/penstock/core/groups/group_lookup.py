"""Groups of any type by their id."""

from collections.abc import Iterable
from typing import TypeAlias

from penstock.core.groups.classic_group import ClassicGroup
from penstock.core.groups.classic_protocol import ClassicGroups
from penstock.core.groups.commands import ListedGroup
from penstock.core.groups.consumer_group import ConsumerGroup
from penstock.core.groups.consumer_protocol import ConsumerGroups
from penstock.core.groups.facts import GroupDeleted, GroupImage
from penstock.core.groups.outcome import GroupOutcome
from penstock.core.groups.share_group import ShareGroup
from penstock.core.groups.share_protocol import ShareGroups

AnyGroup: TypeAlias = ClassicGroup | ConsumerGroup | ShareGroup


class GroupLookup:
    """Finds, lists and deletes groups, whatever their type."""

    def __init__(
        self, image: GroupImage, classic: ClassicGroups, consumers: ConsumerGroups, shares: ShareGroups
    ) -> None:
        self._image = image
        self._classic = classic
        self._consumers = consumers
        self._shares = shares

    def find(self, group_id: str, outcome: GroupOutcome) -> AnyGroup | None:
        if group_id in self._image.consumers:
            return self._consumers.find(group_id, outcome)
        if group_id in self._image.shares:
            return self._shares.find(group_id, outcome)
        return self._classic.find(group_id)

    def group_ids(self) -> list[str]:
        """Every group, in no order."""
        return list(dict.fromkeys([*self._image.group_ids(), *self._classic.live_ids()]))

    def listed(self, group_ids: Iterable[str]) -> list[ListedGroup]:
        """Those of these groups that there are, by id."""
        found = [self._listed_one(group_id) for group_id in sorted(group_ids)]
        return [group for group in found if group is not None]

    def _listed_one(self, group_id: str) -> ListedGroup | None:
        if group_id in self._image.consumers:
            return self._consumers.listed(group_id)
        if group_id in self._image.shares:
            return self._shares.listed(group_id)
        return self._classic.listed(group_id)

    def delete(self, group_id: str, outcome: GroupOutcome) -> None:
        """Delete what is stored of an empty group but its offsets."""
        stored = self._image.consumers.get(group_id)
        if stored is not None:
            outcome.facts += stored.tombstones(group_id)
            self._consumers.forget(group_id)
        shared = self._image.shares.get(group_id)
        if shared is not None:
            outcome.facts += shared.tombstones(group_id)
            self._shares.forget(group_id)
        if group_id in self._image.groups:
            outcome.facts.append(GroupDeleted(group_id))
        self._classic.forget(group_id)
        outcome.rest(group_id)
