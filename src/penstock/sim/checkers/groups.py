"""What a group coordinator guarantees its members.

    offset went back    a committed offset that was acknowledged is returned lower later on
    offset out of air   an offset is returned that nobody ever committed
    fenced member       a commit of an old generation is accepted after members know a newer one
    split generation    two assignments for one generation

Members move forward only: each begins at the committed offset and commits what it has read, and
one that does not know what became of a commit leaves its generation. So whatever is acknowledged
is the least that a later OffsetFetch may return.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

NO_COMMIT = -1


class CommitAttempt(NamedTuple):
    """A commit on its way, and the newest generation that was known when it left."""

    group: str
    partition: object
    generation: int
    offset: int
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
    _acknowledged: dict[tuple[str, object], int] = field(default_factory=dict)
    _attempted: dict[tuple[str, object], dict[int, None]] = field(default_factory=dict)
    _newest: dict[str, int] = field(default_factory=dict)
    _assignments: dict[tuple[str, int], bytes] = field(default_factory=dict)

    def assigned(self, group: str, generation: int, plan: bytes) -> None:
        """A member got its part of a plan, which its leader made for all members."""
        known = self._assignments.setdefault((group, generation), plan)
        if known != plan:
            self._note(f"split generation: {group} has {known!r} and {plan!r} in generation {generation}")
        self._newest[group] = max(generation, self._newest.get(group, NO_COMMIT))

    def committing(self, group: str, partition: object, generation: int, offset: int) -> CommitAttempt:
        """A member sends a commit."""
        self._attempted.setdefault((group, partition), {})[offset] = None
        return CommitAttempt(group, partition, generation, offset, self._newest.get(group, NO_COMMIT))

    def committed(self, attempt: CommitAttempt) -> None:
        """The coordinator has accepted it."""
        self.commits += 1
        if attempt.generation < attempt.newest:
            self._note(
                f"fenced member: {attempt.group} took {attempt.offset} from generation "
                f"{attempt.generation}, though members knew of {attempt.newest}"
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
