"""Which partitions the query reads, and where their logs begin and end now, asked of the broker."""

import time
from collections.abc import Mapping
from typing import NamedTuple

from penstock.client import TopicCatalog
from penstock.spark.kafka_options import kafka_endpoint
from penstock.spark.source.offsets import Partition, SourceOffsets
from penstock.spark.source.options import SourceOptions

# A broker that has just come back may return an end that is too low.
LOOKS_MAX = 4
PAUSE_SECONDS = 0.25


class OffsetsSnapshot(NamedTuple):
    """What was there at one moment."""

    earliest: Mapping[Partition, int]
    latest: Mapping[Partition, int]
    topic_ids: Mapping[str, str]


class BrokerOffsets:
    """Asks the broker for partitions and their offsets."""

    def __init__(self, options: SourceOptions, catalogue: TopicCatalog | None = None) -> None:
        self._options = options
        self.catalogue = catalogue or TopicCatalog(
            kafka_endpoint(options.settings),
            committed_only=options.committed_only,
            patience_ms=options.retry_timeout_ms,
        )

    def partitions(self) -> tuple[list[Partition], dict[str, str]]:
        """What the query reads now, and the ids of the topics."""
        shapes = self._options.selection.find(self.catalogue)
        ids = {topic: shape.topic_id for topic, shape in shapes.items() if shape.topic_id}
        partitions = [(topic, one) for topic, shape in shapes.items() for one in shape.partitions]
        return partitions, ids if self._options.topic_ids else {}

    def snapshot(self, start: SourceOffsets) -> OffsetsSnapshot:
        """Where the logs begin and end; looked for again if one seems to end before `start`."""
        for turn in range(LOOKS_MAX):
            partitions, ids = self.partitions()
            found = OffsetsSnapshot(
                self.catalogue.earliest(partitions), self.catalogue.latest(partitions), ids
            )
            now = SourceOffsets(found.latest, ids)
            if not any(
                found.latest.get(one, offset) < offset and not now.differs_from(start, one[0])
                for one, offset in start.positions.items()
            ):
                break
            if turn < LOOKS_MAX - 1:
                time.sleep(PAUSE_SECONDS)
        return found
