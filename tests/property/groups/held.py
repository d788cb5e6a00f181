"""What a coordinator counts as it goes, counted once more from scratch."""

from penstock.core.groups import GroupCoordinator
from penstock.core.groups.held_bytes import GROUP_BYTES, text_bytes


def check_counts(coordinator: GroupCoordinator) -> None:
    image, rebuilt = coordinator.image, GroupCoordinator()
    for fact in coordinator.snapshot():
        rebuilt.apply(fact)
    live = list(coordinator._classic._live.values())
    assert rebuilt.image.held.total == image.held.total - sum([group.held.total for group in live])
    assert rebuilt.size() == coordinator.size() == _size(coordinator)

    for group in live:
        own_bytes = GROUP_BYTES + text_bytes(group.group_id)
        assert group.held.total == (
            (own_bytes if group.members else 0)
            + sum([member.held_bytes() for member in group.members.values()])
            + sum([group._given_bytes(member_id) for member_id in group.pending])
        )
    for consumers in coordinator._consumers._live.values():
        members = [member.stored for member in consumers.members.values()]
        subscribed = {name for member in members for name in consumers.topics_of(member)}
        assert set(consumers._subscribers) == subscribed
        assert set(consumers._pattern_users) == {member.pattern for member in members} - {None}
        if not consumers._changed:
            assert set(consumers.topics) <= subscribed


def _size(coordinator: GroupCoordinator) -> int:
    image = coordinator.image
    consumers = sum([group.size() for group in image.consumers.values()])
    shares = sum([group.size() for group in image.shares.values()])
    positions = sum(map(len, image.offsets.values())) + len(list(image.pending))
    return len(image.groups) + consumers + shares + positions
