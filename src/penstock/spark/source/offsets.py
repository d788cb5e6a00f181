"""How far a query has read, as the JSON that Spark keeps in its checkpoint.

    {"metrics": {"0": 5, "1": 7}, "metrics@Wm0cGXKvQ2-2Jt7oQqR3Pg": {}}

The first entry is the official connector's form. The second says which topic it was: one that was
deleted and created again has another id, though its name and its offsets may look the same. To a
reader of the official form it is a topic without partitions, that is, nothing; no topic's name has
an "@". Spark compares these as strings, so their order never changes.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from penstock.spark.errors import PipelineError

ID_MARK = "@"
Partition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class SourceOffsets:
    """The next offset to read in each partition, and the ids of their topics where they are known."""

    positions: Mapping[Partition, int]
    topic_ids: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def as_json(self) -> dict[str, dict[str, int]]:
        """What Spark writes down; equal offsets are always written the same."""
        written: dict[str, dict[str, int]] = {}
        for (topic, partition), offset in sorted(self.positions.items()):
            written.setdefault(topic, {})[str(partition)] = offset
        for topic, topic_id in self.topic_ids.items():
            if topic in written and topic_id:
                written[f"{topic}{ID_MARK}{topic_id}"] = {}
        return dict(sorted(written.items()))

    def differs_from(self, other: "SourceOffsets", topic: str) -> bool:
        """Whether the topic's name now stands for another topic."""
        mine, theirs = self.topic_ids.get(topic), other.topic_ids.get(topic)
        return mine is not None and theirs is not None and mine != theirs


def offsets_behind_latest(end: str | None, latest: str | None) -> dict[str, str]:
    """What the official connector shows as metrics, from `endOffset` and `latestOffset` of a progress.

    Spark has no place for the metrics of a source that is written in Python.
    """
    if not end or not latest:
        return {}
    read, there = (read_offsets(json.loads(written)).positions for written in (end, latest))
    behind = [max(0, offset - read.get(one, offset)) for one, offset in there.items()]
    if not behind:
        return {}
    return {
        "avgOffsetsBehindLatest": str(sum(behind) / len(behind)),
        "maxOffsetsBehindLatest": str(max(behind)),
        "minOffsetsBehindLatest": str(min(behind)),
    }


def read_offsets(written: Any) -> SourceOffsets:
    """What `as_json` or the official connector wrote; a checkpoint of anything else is an error."""
    positions: dict[Partition, int] = {}
    topic_ids: dict[str, str] = {}
    try:
        for name, partitions in written.items():
            topic, mark, topic_id = name.partition(ID_MARK)
            if mark:
                topic_ids[topic] = topic_id
            for partition, offset in partitions.items():
                if not isinstance(offset, int) or isinstance(offset, bool):
                    raise TypeError
                positions[topic, int(partition)] = offset
    except (AttributeError, TypeError, ValueError):
        raise PipelineError(
            f"the checkpoint holds {written!r}, which are no offsets of topics:"
            " it belongs to a query on another source"
        ) from None
    return SourceOffsets(positions, topic_ids)
