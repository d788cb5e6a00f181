"""What the consumer group protocol (KIP-848) guarantees the members of a group.

    two owners        two live members have one partition at the same time
    epoch went back   a member is told a lower epoch than before, or joins below what anybody was told before
    stale commit      a commit is accepted of an epoch that its member had left behind when it was sent
    removed member    a commit is accepted of a member that had left, or had been fenced, when it was sent
    two instances     a process takes the place of a static member that is alive
    stale heartbeat   a heartbeat is accepted whose member had been told two newer epochs when it was sent

A member has a partition from the response that gives it until it sends the heartbeat that does not name
it any more, or leaves, or dies, or is fenced. It also ends when its session may have: that lasts from when
the last heartbeat was sent that was answered; or when it may have been removed because it took too long to
give up what it has to. One newer epoch does not make a heartbeat stale: the response
with it may have been lost.

Committed offsets are compared by `groups`.
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

NO_EPOCH = -1


class JoinAttempt(NamedTuple):
    """A member joins; `newest` is the newest epoch of the group that anybody had been told by then."""

    group: str
    member: str
    newest: int


class EpochAttempt(NamedTuple):
    """A request with a member's epoch, and what the member had been told when it was sent."""

    group: str
    member: str
    epoch: int
    newer: int
    is_removed: bool

    @property
    def is_stale_commit(self) -> bool:
        """Whether it has to be refused, if it is a commit."""
        return self.is_removed or self.newer > 0

    @property
    def is_stale_heartbeat(self) -> bool:
        return self.newer > 1


@dataclass(slots=True)
class Claim:
    """What a member has, and until when that is sure."""

    until: int
    partitions: dict[Hashable, None]


@dataclass(slots=True)
class ConsumerGroupChecker:
    """What members of consumer groups sent, and the responses they got. A member is one process."""

    anomalies: list[str] = field(default_factory=list)
    commits: int = 0
    assignments: int = 0
    revocations: int = 0
    removals: int = 0
    _claims: dict[str, dict[str, Claim]] = field(default_factory=dict)
    # Every epoch that a member was told, in order.
    _told: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    _heard: dict[tuple[str, str], int] = field(default_factory=dict)
    _newest: dict[str, int] = field(default_factory=dict)
    _removed: dict[tuple[str, str], None] = field(default_factory=dict)

    def joining(self, group: str, member: str) -> JoinAttempt:
        """A member sends a heartbeat with epoch 0."""
        self._removed.pop((group, member), None)
        self._heard.pop((group, member), None)
        return JoinAttempt(group, member, self._newest.get(group, NO_EPOCH))

    def joined(self, attempt: JoinAttempt, epoch: int) -> None:
        """It got an epoch."""
        if epoch < attempt.newest:
            self._note(
                f"epoch went back: {attempt.member} joins {attempt.group} at epoch {epoch}, "
                f"though {attempt.newest} was told before"
            )

    def told(self, group: str, member: str, epoch: int) -> None:
        """The coordinator writes a response with the epoch of a member."""
        epochs = self._told.setdefault((group, member), [])
        if not epochs or epoch > epochs[-1]:
            epochs.append(epoch)
        self._newest[group] = max(epoch, self._newest.get(group, NO_EPOCH))

    def heard(self, group: str, member: str, epoch: int) -> None:
        """A member gets a response with its epoch."""
        before = self._heard.get((group, member), NO_EPOCH)
        if epoch < before:
            self._note(f"epoch went back: {member} of {group} was at {before}, and is told {epoch}")
        self._heard[group, member] = epoch

    def has(self, group: str, member: str, partitions: Iterable[Hashable], *, now: int, until: int) -> None:
        """A member gets a response, after which it has these partitions."""
        claims = self._claims.setdefault(group, {})
        mine = claims[member] = Claim(until, dict.fromkeys(partitions))
        if until <= now:
            return
        for other, claim in claims.items():
            if other == member or claim.until <= now:
                continue
            for partition in mine.partitions:
                if partition in claim.partitions:
                    self._note(f"two owners: {other} and {member} both have {partition} of {group}")

    def keeps(self, group: str, member: str, partitions: Iterable[Hashable]) -> None:
        """A member sends a heartbeat that names these, and no others."""
        claim = self._claims.get(group, {}).get(member)
        if claim is not None:
            named = dict.fromkeys(partitions)
            kept = [partition for partition in claim.partitions if partition in named]
            self.revocations += len(claim.partitions) - len(kept)
            claim.partitions = dict.fromkeys(kept)

    def gone(self, group: str, member: str) -> None:
        """A member dies, or sends the heartbeat that it leaves with: it has nothing from now on."""
        self._claims.get(group, {}).pop(member, None)

    def removed(self, group: str, member: str) -> None:
        """A member is told that it has left, or that it is fenced."""
        self.gone(group, member)
        self.removals += 1
        self._removed[group, member] = None

    def sending(self, group: str, member: str, epoch: int) -> EpochAttempt:
        """A member sends a commit or a heartbeat with this epoch."""
        newer = [each for each in self._told.get((group, member), []) if each > epoch]
        return EpochAttempt(group, member, epoch, len(newer), (group, member) in self._removed)

    def committed(self, attempt: EpochAttempt) -> None:
        """The coordinator has accepted a commit."""
        self.commits += 1
        if attempt.is_removed:
            self._note(
                f"removed member: {attempt.group} took a commit of {attempt.member}, which was not in it"
            )
        elif attempt.is_stale_commit:
            self._note(
                f"stale commit: {attempt.group} took a commit of {attempt.member} in epoch {attempt.epoch}, "
                f"though it had been told a newer one"
            )

    def beat(self, attempt: EpochAttempt) -> None:
        """The coordinator has accepted a heartbeat."""
        if attempt.is_stale_heartbeat:
            self._note(
                f"stale heartbeat: {attempt.group} took one of {attempt.member} in epoch {attempt.epoch}, "
                f"though it had been told {attempt.newer} newer ones"
            )

    def replaced(self, group: str, member: str, now: int) -> None:
        """The coordinator has let another process have the instance id of a member."""
        claim = self._claims.get(group, {}).get(member)
        if claim is not None and claim.until > now:
            self._note(f"two instances: {member} of {group} is alive, and another has its instance id")

    def owners(self, group: str, partition: Hashable, now: int) -> list[str]:
        """The live members that have a partition."""
        claims = self._claims.get(group, {})
        return [m for m, claim in claims.items() if claim.until > now and partition in claim.partitions]

    def _note(self, anomaly: str) -> None:
        if anomaly not in self.anomalies:
            self.anomalies.append(anomaly)
