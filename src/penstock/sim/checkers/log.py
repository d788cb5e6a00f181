"""What a partition guarantees its producers and consumers, checked against what they saw.

Values are unique. A producer writes down each batch before it sends it and each
acknowledgement it gets; a consumer writes down what it read and where. At the end the
partition is read once more, from its start to its end, and compared:

    inconsistent     one offset, two values
    lost             acknowledged, or read by somebody, and passed over by those who read on; of a
                     compacted partition, only the newest of its key
    unseen           acknowledged, and nobody ever got as far
    duplicate        one value at two offsets
    moved            acknowledged or read at one offset, found at another
    replaced         read at an offset that holds something else, or nothing, at the end
    unexpected       there, but never sent
    out of order     a producer's values are not in the order it sent them
    gap              offsets that hold nothing
    poll skip        a consumer went from one record to a later one, past others
    poll back        a consumer was given a record again without having asked for it
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from penstock.sim.values import key_of


@dataclass(slots=True)
class LogHistory:
    """What the clients of one partition saw. Lists of values are in the order of sending.

    `acknowledged` must survive whatever a minority of nodes goes through. What the
    leader alone acknowledged is in `told_by_leader`: it may be lost, but must not move.
    """

    sent: dict[str, list[bytes]] = field(default_factory=dict)
    # Sent by producers that do not wait for one batch to arrive before the next one overtakes it.
    sent_in_any_order: list[bytes] = field(default_factory=list)
    acknowledged: dict[bytes, int] = field(default_factory=dict)
    told_by_leader: dict[bytes, int] = field(default_factory=dict)
    read: dict[int, bytes] = field(default_factory=dict)
    # Of each consumer, the offsets it was given; a new list begins when it asked for another place.
    polls: dict[str, list[list[int]]] = field(default_factory=dict)
    # Whether of every key only the newest record has to stay.
    is_compacted: bool = False
    # Two consumers, or one at two times, saw different values at one offset.
    contradictions: list[str] = field(default_factory=list)

    def saw(self, offset: int, value: bytes) -> None:
        before = self.read.setdefault(offset, value)
        if before != value:
            self.contradictions.append(f"inconsistent: offset {offset} was {before!r}, then {value!r}")

    def sought(self, consumer: str) -> None:
        """A consumer begins anew, wherever it wants to."""
        self.polls.setdefault(consumer, []).append([])

    def polled(self, consumer: str, records: Iterable[tuple[int, bytes]]) -> None:
        """A consumer that assigns itself was given these records, in this order."""
        offsets = self.polls[consumer][-1]
        for offset, value in records:
            self.saw(offset, value)
            offsets.append(offset)


def check_log(history: LogHistory, final: Sequence[tuple[int, bytes]], start: int = 0) -> list[str]:
    """Every anomaly of one partition, given what it holds at the end.

    What is below `start` was deleted on purpose.
    """
    places: dict[bytes, int] = {}
    anomalies = list(history.contradictions)
    for offset, value in final:
        if value in places:
            anomalies.append(f"duplicate: {value!r} at {places[value]} and {offset}")
        places.setdefault(value, offset)
    if not history.is_compacted:
        anomalies += _check_offsets(final)
    passed = max(history.read, default=-1)
    newest = newest_of_keys(final) if history.is_compacted else {}
    acknowledged = {
        value: offset
        for value, offset in history.acknowledged.items()
        if offset >= start and not _is_outdated(offset, value, newest)
    }
    anomalies += _check_places("acknowledged", acknowledged, places, passed)
    anomalies += _check_told(history.told_by_leader, places)
    read = {
        offset: value
        for offset, value in history.read.items()
        if offset >= start and not _is_outdated(offset, value, newest)
    }
    anomalies += _check_reads(read, dict(final), places)
    known = dict.fromkeys(history.sent_in_any_order)
    known |= dict.fromkeys(value for values in history.sent.values() for value in values)
    anomalies += [f"unexpected: {value!r} was never sent" for value in places if value not in known]
    for name, values in history.sent.items():
        anomalies += _check_order(name, [places[value] for value in values if value in places])
    # Each replica compacts by itself: a consumer may have read from one that had less.
    there = sorted(offset for value, offset in places.items() if not _is_outdated(offset, value, newest))
    for name, runs in history.polls.items():
        for run in runs:
            anomalies += _check_polls(name, run, there)
    return anomalies


def newest_of_keys(records: Iterable[tuple[int, bytes]]) -> dict[bytes, int]:
    """Where the newest record of each key is."""
    return {key_of(value): offset for offset, value in records}


def check_compacted_copy(
    history: LogHistory, final: Sequence[tuple[int, bytes]], copy: Sequence[tuple[int, bytes]]
) -> list[str]:
    """What one replica lacks, or has differently; each compacts by itself."""
    held, newest = dict(copy), newest_of_keys(copy)
    anomalies = []
    for offset, value in final:
        if held.get(offset, value) != value:
            anomalies.append(f"inconsistent: offset {offset} is {held[offset]!r} and {value!r}")
        elif offset not in held and newest.get(key_of(value), -1) < offset:
            anomalies.append(f"lost: {value!r} at {offset}, the newest of its key")
    for value, offset in history.acknowledged.items():
        if held.get(offset) != value and newest.get(key_of(value), -1) <= offset:
            anomalies.append(f"lost: {value!r} was acknowledged at {offset}, the newest of its key")
    return anomalies


def _is_outdated(offset: int, value: bytes, newest: Mapping[bytes, int]) -> bool:
    """Whether compaction may have taken it: the key has a newer record."""
    return newest.get(key_of(value), -1) > offset if newest else False


def _check_offsets(final: Sequence[tuple[int, bytes]]) -> list[str]:
    offsets = [offset for offset, _ in final]
    return [
        f"gap: {after} follows {before}"
        for before, after in itertools.pairwise(offsets)
        if after != before + 1
    ]


def _check_places(
    how: str, expected: Mapping[bytes, int], places: Mapping[bytes, int], passed: int
) -> list[str]:
    anomalies = []
    for value, offset in expected.items():
        found = places.get(value)
        if found is None:
            kind = "lost" if offset <= passed else "unseen"
            anomalies.append(f"{kind}: {value!r} was {how} at {offset}")
        elif found != offset:
            anomalies.append(f"moved: {value!r} was {how} at {offset}, and is at {found}")
    return anomalies


def _check_reads(
    read: Mapping[int, bytes], final: Mapping[int, bytes], places: Mapping[bytes, int]
) -> list[str]:
    """By offset: what was below a high watermark once stays where it was."""
    anomalies = []
    for offset, value in read.items():
        there = final.get(offset)
        if there == value:
            continue
        if value in places:
            anomalies.append(f"moved: {value!r} was read at {offset}, and is at {places[value]}")
        elif there is None:
            anomalies.append(f"lost: {value!r} was read at {offset}")
        else:
            anomalies.append(f"replaced: {value!r} was read at {offset}, which holds {there!r}")
    return anomalies


def _check_told(told: Mapping[bytes, int], places: Mapping[bytes, int]) -> list[str]:
    return [
        f"moved: {value!r} was acknowledged at {offset}, and is at {places[value]}"
        for value, offset in told.items()
        if places.get(value, offset) != offset
    ]


def _check_order(name: str, offsets: Sequence[int]) -> list[str]:
    return [
        f"out of order: {name} has {after} after {before}"
        for before, after in itertools.pairwise(offsets)
        if after <= before
    ]


def _check_polls(name: str, offsets: Sequence[int], there: Sequence[int]) -> list[str]:
    anomalies = []
    known = dict.fromkeys(there)
    for before, after in itertools.pairwise(offsets):
        if after <= before:
            anomalies.append(f"poll back: {name} was given {after} behind {before}")
        elif after > before + 1:
            passed = [offset for offset in range(before + 1, after) if offset in known]
            if passed:
                anomalies.append(f"poll skip: {name} went from {before} to {after}, past {passed[0]}")
    return anomalies
