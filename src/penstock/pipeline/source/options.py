"""The options of `format("penstock")` when it is read, as one value."""

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.client import PATIENCE_MS
from penstock.pipeline.errors import BadOption
from penstock.pipeline.settings import boolean_option, choice_option, integer_option, kafka_settings, option
from penstock.pipeline.source.positions import Position, ending_position, starting_position
from penstock.pipeline.source.selection import Selection, selection

ISOLATION = "isolation.level"
TRIGGER_DELAY = "15m"
_ENDINGS = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
OPTIONS = (
    "subscribe", "subscribePattern", "assign", "startingTimestamp", "startingOffsetsByTimestamp",
    "startingOffsets", "startingOffsetsByTimestampStrategy", *_ENDINGS, "failOnDataLoss", "includeHeaders",
    "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "minPartitions",
    "maxRecordsPerPartition", "group", "topicIds", "retryTimeoutMs",
)  # fmt: skip
# The official connector's, about consumers that do not exist here; and Spark's own.
WITHOUT_MEANING = (
    "kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs", "groupIdPrefix",
    "path", "checkpointLocation",
)  # fmt: skip
# Those of `valueFormat` are checked by penstock.pipeline.formats.
_ELSEWHERE = ("kafka.", "value")
_DURATION = re.compile(r"\s*(\d{1,12})\s*(ms|s|m|min|h|d)?\s*")
_UNITS_MS = {"ms": 1, None: 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What a query that reads topics was told."""

    settings: Mapping[str, str]
    selection: Selection
    starting: Position
    ending: Position
    include_headers: bool
    fail_on_data_loss: bool
    max_offsets: int | None
    min_offsets: int | None
    max_trigger_delay_ms: int
    min_partitions: int | None
    max_records_per_partition: int | None
    group: str | None
    topic_ids: bool
    retry_timeout_ms: int

    @property
    def committed_only(self) -> bool:
        return self.settings[ISOLATION] == "read_committed"


def source_options(options: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """Read and check all options; BadOption names the first that cannot be."""
    refuse_unknown(options)
    if streaming:
        for name in _ENDINGS:
            if option(options, name) is not None:
                raise BadOption(name, "a streaming query has no end; use a batch query (spark.read)")
    group = option(options, "group")
    if group is not None and not group.strip():
        raise BadOption("group", "is empty")
    return SourceOptions(
        settings=reading_settings(options),
        selection=selection(options),
        starting=starting_position(options, streaming=streaming),
        ending=ending_position(options),
        include_headers=boolean_option(options, "includeHeaders", False),
        fail_on_data_loss=boolean_option(options, "failOnDataLoss", True),
        max_offsets=integer_option(options, "maxOffsetsPerTrigger", None, 1),
        min_offsets=integer_option(options, "minOffsetsPerTrigger", None, 1),
        max_trigger_delay_ms=_duration_ms(options, "maxTriggerDelay", TRIGGER_DELAY),
        min_partitions=integer_option(options, "minPartitions", None, 1),
        max_records_per_partition=integer_option(options, "maxRecordsPerPartition", None, 1),
        group=group,
        topic_ids=boolean_option(options, "topicIds", True),
        retry_timeout_ms=integer_option(options, "retryTimeoutMs", PATIENCE_MS, 0),
    )


def selecting_options(options: Mapping[str, str]) -> SourceOptions:
    """What can be said before it is known whether the query is a batch or a stream: all but its ends."""
    refuse_unknown(options)
    ends = ("starting", "ending")
    return source_options(
        {name: value for name, value in options.items() if not name.lower().startswith(ends)}, streaming=True
    )


def reading_settings(options: Mapping[str, str]) -> dict[str, str]:
    """What librdkafka is told; only committed records are read unless somebody asks for more."""
    settings = kafka_settings(options)
    level = choice_option(
        options, f"kafka.{ISOLATION}", ("read_committed", "read_uncommitted"), "read_committed"
    )
    return settings | {ISOLATION: level}


def refuse_unknown(options: Mapping[str, str]) -> None:
    """A misspelled option would otherwise be one that silently does nothing."""
    known = {name.lower(): name for name in OPTIONS + WITHOUT_MEANING}
    for name in options:
        if name.lower() in known or name.lower().startswith(_ELSEWHERE):
            continue
        close = difflib.get_close_matches(name.lower(), known, n=1)
        raise BadOption(name, f"is not known; did you mean {known[close[0]]}?" if close else "is not known")


def _duration_ms(options: Mapping[str, str], name: str, default: str) -> int:
    text = option(options, name, default)
    found = _DURATION.fullmatch(text.lower())
    if found is None:
        raise BadOption(name, f"{text!r} is no duration such as 500ms, 30s, 15m or 1h")
    return int(found[1]) * _UNITS_MS[found[2]]
