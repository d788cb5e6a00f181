"""What a group coordinator guarantees its members.

    offset went back    a committed offset that was acknowledged is returned lower later on
    offset out of air   an offset is returned that nobody ever committed
    fenced member       a commit is accepted that was sent in an old generation, after a newer one was there
    split generation    two assignments for one generation
    two owners          two members own one partition in one generation
    stale membership    a heartbeat of an old generation is accepted, though sent after a newer one was there
    overlap             a member acts for a partition long after a newer generation was there

A generation is there when the coordinator writes the first response that has its assignment: no failover
takes it back from then on. The last two hold only if a coordinator that was stopped or cut off answers
nothing any more (`is_fresh`).

Members move forward only: each begins at the committed offset and commits what it has read, and
one that does not know what became of a commit leaves its generation. So whatever is acknowledged
is the least that a later OffsetFetch may return.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

NO_COMMIT = -1


class CommitAttempt(NamedTuple):
    """A commit on its way, and the newest generation that was there when it left."""

    group: str
    partition: object
    generation: int
    offset: int
    newest: int


class MemberHeartbeat(NamedTuple):
    """A heartbeat on its way, and the newest generation that was there when it left."""

    group: str
    generation: int
    newest: int


class OffsetQuery(NamedTuple):
    """An OffsetFetch under way; the response must not be below `least`."""

    group: str
    partition: object
    least: int


@dataclass(slots=True)
class GroupChecker:
    """What members of groups requested, and the responses they got."""

    anomalies: list[str] = field(default_factory=list)
    commits: int = 0
    is_fresh: bool = False
    _acknowledged: dict[tuple[str, object], int] = field(default_factory=dict)
    _attempted: dict[tuple[str, object], dict[int, None]] = field(default_factory=dict)
    _newest: dict[str, int] = field(default_factory=dict)
    # Since when.
    _newest_since: dict[str, int] = field(default_factory=dict)
    _assignments: dict[tuple[str, int], bytes] = field(default_factory=dict)
    _owners: dict[tuple[str, int, object], str] = field(default_factory=dict)

    @property
    def generations(self) -> int:
        """How many there were, in all groups."""
        return len(self._assignments)

    def established(self, group: str, generation: int, plan: bytes, now: int) -> None:
        """The coordinator writes a response with an assignment of this generation."""
        self.assigned(group, generation, plan)
        if generation > self._newest.get(group, NO_COMMIT):
            self._newest[group] = generation
            self._newest_since[group] = now

    def owns(self, group: str, generation: int, partition: object, member_id: str) -> None:
        """A member takes a partition for its own."""
        owner = self._owners.setdefault((group, generation, partition), member_id)
        if owner != member_id:
            self._note(
                f"two owners: {owner} and {member_id} both own {partition} of {group} "
                f"in generation {generation}"
            )

    def acts(self, group: str, generation: int, now: int, session_ns: int) -> None:
        """A member that has heard of its coordinator within its session reads as an owner."""
        newest = self._newest.get(group, NO_COMMIT)
        if self.is_fresh and generation < newest and now - self._newest_since[group] > session_ns:
            self._note(
                f"overlap: a member of generation {generation} of {group} still acts, "
                f"longer than its session after generation {newest} was there"
            )

    def beating(self, group: str, generation: int) -> MemberHeartbeat:
        """A member sends a heartbeat."""
        return MemberHeartbeat(group, generation, self._newest.get(group, NO_COMMIT))

    def beat(self, heartbeat: MemberHeartbeat) -> None:
        """The coordinator has accepted it."""
        if self.is_fresh and heartbeat.generation < heartbeat.newest:
            self._note(
                f"stale membership: {heartbeat.group} accepts a heartbeat of generation "
                f"{heartbeat.generation}, though {heartbeat.newest} was there before it was sent"
            )

    def assigned(self, group: str, generation: int, plan: bytes) -> None:
        """A member got its part of a plan, which its leader made for all members."""
        known = self._assignments.setdefault((group, generation), plan)
        if known != plan:
            self._note(f"split generation: {group} has {known!r} and {plan!r} in generation {generation}")

    def committing(self, group: str, partition: object, generation: int, offset: int) -> CommitAttempt:
        """A member sends a commit."""
        self._attempted.setdefault((group, partition), {})[offset] = None
        return CommitAttempt(group, partition, generation, offset, self._newest.get(group, NO_COMMIT))

    def adding(self, group: str, partition: object, generation: int, offset: int) -> CommitAttempt:
        """A member adds an offset to a transaction: it is committed with it, or never."""
        return CommitAttempt(group, partition, generation, offset, self._newest.get(group, NO_COMMIT))

    def ending(self, attempt: CommitAttempt) -> None:
        """The commit of the transaction is asked for."""
        self._attempted.setdefault((attempt.group, attempt.partition), {})[attempt.offset] = None

    def committed(self, attempt: CommitAttempt) -> None:
        """The coordinator has accepted it."""
        self.commits += 1
        if attempt.generation < attempt.newest:
            self._note(
                f"fenced member: {attempt.group} took {attempt.offset} from generation "
                f"{attempt.generation}, though {attempt.newest} was there before it was sent"
            )
        place = (attempt.group, attempt.partition)
        self._acknowledged[place] = max(attempt.offset, self._acknowledged.get(place, NO_COMMIT))

    def committed_offset(self, group: str, partition: object) -> int:
        """How far the group has come for sure; -1 if nothing was acknowledged."""
        return self._acknowledged.get((group, partition), NO_COMMIT)

    def asking(self, group: str, partition: object) -> OffsetQuery:
        """A client asks for the committed offset."""
        return OffsetQuery(group, partition, self._acknowledged.get((group, partition), NO_COMMIT))

    def answered(self, question: OffsetQuery, offset: int) -> None:
        """The coordinator responded; -1 where nothing was committed."""
        group, partition, least = question
        if offset < least:
            self._note(f"offset went back: {group} at {partition} from {least} to {offset}")
        if offset != NO_COMMIT and offset not in self._attempted.get((group, partition), {}):
            self._note(f"offset out of air: {group} at {partition} is at {offset}, which nobody committed")
        # Its commit may have been one whose response got lost: what was returned once stays.
        self._acknowledged[group, partition] = max(
            offset, least, self._acknowledged.get((group, partition), NO_COMMIT)
        )

    def _note(self, anomaly: str) -> None:
        if anomaly not in self.anomalies:
            self.anomalies.append(anomaly)
