"""A broker's responses, written down."""

import re
from collections.abc import Iterable, Mapping

from penstock.client import EARLIEST, LATEST, TopicInfo


class WrittenCatalogue:
    """Answers like `Catalogue` from logs given as (start, end); records are a millisecond apart."""

    def __init__(self, logs: Mapping[tuple[str, int], tuple[int, int]], ids: str = "one") -> None:
        self.logs = dict(logs)
        self.ids = ids

    def topics(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        known = sorted({topic for topic, _ in self.logs} & set(names))
        return {
            name: TopicInfo(name, self.ids, tuple(sorted(p for topic, p in self.logs if topic == name)))
            for name in known
        }

    def matching(self, pattern: re.Pattern[str]) -> dict[str, TopicInfo]:
        return self.topics(topic for topic, _ in self.logs if pattern.fullmatch(topic))

    def offsets(self, moments: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], int]:
        return {one: self._at(one, moment) for one, moment in moments.items() if one in self.logs}

    def earliest(self, partitions: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
        return self.offsets(dict.fromkeys(partitions, EARLIEST))

    def latest(self, partitions: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
        return self.offsets(dict.fromkeys(partitions, LATEST))

    def _at(self, one: tuple[str, int], moment: int) -> int:
        start, end = self.logs[one]
        if moment in (EARLIEST, LATEST):
            return start if moment == EARLIEST else end
        return max(start, moment) if moment < end else -1
