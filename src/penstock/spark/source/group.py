"""The query as a consumer group: its offsets are committed to the broker as well.

Spark keeps the offsets of a query in its checkpoint, and nobody else can see them there. With the
option `group` they are committed to the broker too, for a group without members, so that
`penstock group describe` and every tool for Kafka show the query and its lag. Spark calls the source
for a batch only when the next one is planned, and for the last one never; it calls the listener
`GroupOffsets` as each batch ends.
"""

import json
import logging
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from penstock.client import ClientError, GroupAdmin, GroupOffsetWriter
from penstock.spark.errors import PipelineError, SparkOptionError
from penstock.spark.kafka_options import kafka_endpoint, option
from penstock.spark.source.offsets import Partition, read_offsets
from penstock.spark.source.options import reading_settings

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import QueryProgressEvent, QueryStartedEvent, QueryTerminatedEvent

_log = logging.getLogger(__name__)


class GroupOffsetCommitter:
    """Commits offsets for one group, from outside of it."""

    def __init__(self, settings: Mapping[str, str], group: str) -> None:
        self.group = group
        # A broker that is back should be noticed soon: Spark waits for the commit.
        self._settings = {**settings, "reconnect.backoff.max.ms": "1000"}
        self._writer: GroupOffsetWriter | None = None
        self._last: Mapping[Partition, int] = {}

    def committed(self) -> dict[Partition, int]:
        return self._groups().committed(self.group)

    def refuse_members(self) -> None:
        """A group has the offsets of its members or those of a query, never both."""
        members = self._groups().members(self.group)
        if members:
            raise SparkOptionError(
                "group",
                f"group {self.group} has live members ({', '.join(members)}), whose offsets these would"
                " overwrite; stop them or give the query a group of its own",
            )

    def commit(self, positions: Mapping[Partition, int]) -> None:
        """Commit what changed; a failure is a log line only, for the checkpoint is what counts."""
        changed = {one: offset for one, offset in positions.items() if self._last.get(one) != offset}
        if not changed:
            return
        try:
            if self._writer is None:
                self._writer = GroupOffsetWriter(kafka_endpoint(self._settings), self.group)
            self._writer.commit(changed)
        except ClientError as error:
            _log.warning("group %s: offsets were not committed: %s", self.group, error)
        else:
            self._last = dict(positions)

    def _groups(self) -> GroupAdmin:
        # Not kept: librdkafka's admin client may abort the process once a request of it has timed out.
        return GroupAdmin(kafka_endpoint(self._settings))


class GroupOffsets(StreamingQueryListener):
    """Commits what each batch has read, as it ends: `spark.streams.addListener(GroupOffsets(options))`.

    `options` are those of the query's source: `kafka.*` and `group`. A listener is called for every query
    of its session; `query` names the one that is meant.
    """

    def __init__(self, options: Mapping[str, str], query: str | None = None) -> None:
        group = option(options, "group")
        if not group:
            raise SparkOptionError("group", "is required: the consumer group to commit offsets for")
        self._commits = GroupOffsetCommitter(reading_settings(options), group)
        self._query = query
        self._running: set[str] = set()
        self._ended = threading.Condition()

    def onQueryStarted(self, event: "QueryStartedEvent") -> None:
        """Called before `start()` returns."""
        if self._query in (None, event.name):
            with self._ended:
                self._running.add(str(event.runId))

    def onQueryProgress(self, event: "QueryProgressEvent") -> None:
        """A batch has ended, or a query waits for records."""
        if self._query not in (None, event.progress.name):
            return
        for source in event.progress.sources:
            positions = _positions(source.endOffset)
            if positions:
                self._commits.commit(positions)

    def onQueryTerminated(self, event: "QueryTerminatedEvent") -> None:
        """Called after the progress of the last batch."""
        with self._ended:
            self._running.discard(str(event.runId))
            self._ended.notify_all()

    def wait(self, timeout_seconds: float) -> bool:
        """Wait until the queries have ended and all they read is committed; False if they have not.

        `awaitTermination` returns earlier: Spark calls listeners for the last batch some time later.
        """
        with self._ended:
            return self._ended.wait_for(lambda: not self._running, timeout_seconds)


def _positions(offset: Any) -> Mapping[Partition, int]:
    """The offsets of a source that reads topics; nothing for any other source."""
    try:
        return read_offsets(json.loads(offset)).positions
    except (PipelineError, TypeError, ValueError):
        return {}
