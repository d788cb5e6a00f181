"""About what groups take in memory, and which hosts' clients made them take it.

    stored    of every group and member in the image; replaying a log comes to the same
    live      of classic groups, what is not stored: protocols that were not chosen, ids that were given out

A count is kept as groups change, so that asking for it costs nothing. It is about right and never too
low by much: what clients choose (names, ids, metadata, subscriptions) is counted as it is, the objects
around it by constants.
"""

from typing import NamedTuple

from penstock.core.groups.partition_sets import PartitionSet

# The objects that a group takes, with its metrics; a member; an id that was given out.
GROUP_BYTES, MEMBER_BYTES, GIVEN_ID_BYTES = 2_000, 1_000, 400
# A name in a subscription, or a protocol; a topic and a partition in an assignment.
NAME_BYTES, TOPIC_BYTES, PARTITION_BYTES = 60, 100, 60
# Where it is not known whose they are.
NO_HOST = ""


def text_bytes(*texts: str | None) -> int:
    """What texts take, at four bytes a character where one of them needs it."""
    size = 0
    for text in texts:
        if text:
            size += len(text) if text.isascii() else 4 * len(text)
    return size


def names_bytes(names: tuple[str, ...]) -> int:
    """What a list of names takes, besides the objects that they are."""
    return text_bytes("".join(names))


def partitions_bytes(partitions: PartitionSet) -> int:
    return TOPIC_BYTES * len(partitions) + PARTITION_BYTES * sum(map(len, partitions.values()))


class HeldBytes:
    """What is held, in bytes: all together, and by host. What a part counts, the whole counts too."""

    __slots__ = ("_by_host", "_whole", "total")

    def __init__(self) -> None:
        self.total = 0
        self._by_host: dict[str, int] = {}
        self._whole: HeldBytes | None = None

    def of(self, host: str) -> int:
        return self._by_host.get(host, 0)

    def add(self, host: str, size_bytes: int) -> None:
        """Count more, or less."""
        part: HeldBytes | None = self
        while part is not None:
            part.total += size_bytes
            by_host = part._by_host
            held = by_host.get(host, 0) + size_bytes
            if held:
                by_host[host] = held
            elif host in by_host:
                del by_host[host]
            part = part._whole

    def join(self, whole: "HeldBytes") -> None:
        """Become part of a whole."""
        assert self._whole is None
        for host, size_bytes in self._by_host.items():
            whole.add(host, size_bytes)
        self._whole = whole

    def leave(self) -> None:
        """Be no part of the whole any more."""
        whole, self._whole = self._whole, None
        if whole is None:
            return
        for host, size_bytes in self._by_host.items():
            whole.add(host, -size_bytes)


class _MemberBytes(NamedTuple):
    """What a member of a group takes in memory, and the host of its client."""

    host: str = NO_HOST
    said: int = 0
    target: int = 0
    current: int = 0

    def total(self) -> int:
        return self.said + self.target + self.current


_NOTHING_PAID = _MemberBytes()


class GroupBytes:
    """What one group takes: each member's host pays for it, and one of them for what is no member's."""

    __slots__ = ("_held", "_of_group", "_paid", "_payer")

    def __init__(self, held: HeldBytes, payer: str, group_id: str) -> None:
        self._held = held
        self._payer = payer
        self._paid: dict[str, _MemberBytes] = {}
        self._of_group = 0
        self.pay_of_group(GROUP_BYTES + text_bytes(group_id))

    def pay_of_group(self, more_bytes: int) -> None:
        """Count more, or less, that is no member's."""
        self._of_group += more_bytes
        self._held.add(self._payer, more_bytes)

    def pay(
        self,
        member_id: str,
        *,
        said: int | None = None,
        target: int | None = None,
        current: int | None = None,
        host: str | None = None,
    ) -> None:
        """Count what a member takes: what is not given is as it was."""
        before = self._paid.get(member_id, _NOTHING_PAID)
        after = _MemberBytes(
            before.host if host is None else host,
            before.said if said is None else said,
            before.target if target is None else target,
            before.current if current is None else current,
        )
        if after.host == before.host:
            self._held.add(after.host, after.total() - before.total())
        else:
            self._held.add(before.host, -before.total())
            self._held.add(after.host, after.total())
        if after.total():
            self._paid[member_id] = after
        else:
            self._paid.pop(member_id, None)

    def end(self) -> None:
        """Count nothing of the group any more; its members are gone."""
        self.pay_of_group(-self._of_group)
