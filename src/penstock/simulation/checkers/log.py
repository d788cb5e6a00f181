"""What a partition promises its producers and consumers, judged from what they saw.

Values are unique. A producer writes down each batch before it sends it and each
acknowledgement it gets; a consumer writes down what it read and where. At the end the
partition is read once more, from its start to its end, and compared:

    lost             acknowledged, or read by somebody, and not there at the end
    duplicate        one value at two offsets
    moved            acknowledged or read at one offset, found at another
    unexpected       there, but never sent
    out of order     a producer's values are not in the order it sent them
    gap              offsets that hold nothing
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class LogHistory:
    """What the clients of one partition saw. Lists of values are in the order of sending."""

    sent: dict[str, list[bytes]] = field(default_factory=dict)
    acknowledged: dict[bytes, int] = field(default_factory=dict)
    read: dict[int, bytes] = field(default_factory=dict)
    # Two consumers, or one at two times, saw different values at one offset.
    contradictions: list[str] = field(default_factory=list)

    def saw(self, offset: int, value: bytes) -> None:
        before = self.read.setdefault(offset, value)
        if before != value:
            self.contradictions.append(f"inconsistent: offset {offset} was {before!r}, then {value!r}")


def check_log(history: LogHistory, final: Sequence[tuple[int, bytes]]) -> list[str]:
    """Every anomaly of one partition, given what it holds at the end."""
    places: dict[bytes, int] = {}
    anomalies = list(history.contradictions)
    for offset, value in final:
        if value in places:
            anomalies.append(f"duplicate: {value!r} at {places[value]} and {offset}")
        places.setdefault(value, offset)
    anomalies += _check_offsets(final)
    anomalies += _check_places("acknowledged", dict(history.acknowledged.items()), places)
    anomalies += _check_places("read", {v: o for o, v in history.read.items()}, places)
    known = {value for values in history.sent.values() for value in values}
    anomalies += [f"unexpected: {value!r} was never sent" for value in places if value not in known]
    for name, values in history.sent.items():
        anomalies += _check_order(name, [places[value] for value in values if value in places])
    return anomalies


def _check_offsets(final: Sequence[tuple[int, bytes]]) -> list[str]:
    offsets = [offset for offset, _ in final]
    return [
        f"gap: {after} follows {before}"
        for before, after in itertools.pairwise(offsets)
        if after != before + 1
    ]


def _check_places(how: str, expected: Mapping[bytes, int], places: Mapping[bytes, int]) -> list[str]:
    anomalies = []
    for value, offset in expected.items():
        found = places.get(value)
        if found is None:
            anomalies.append(f"lost: {value!r} was {how} at {offset}")
        elif found != offset:
            anomalies.append(f"moved: {value!r} was {how} at {offset} and is at {found}")
    return anomalies


def _check_order(name: str, offsets: Sequence[int]) -> list[str]:
    return [
        f"out of order: {name} has {after} after {before}"
        for before, after in itertools.pairwise(offsets)
        if after <= before
    ]
