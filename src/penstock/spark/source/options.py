"""The options of `format("penstock")` for reading, as one value.

Where reading starts and ends is given by the official connector's options, in their precedence:

    startingTimestamp  before  startingOffsetsByTimestamp  before  startingOffsets
    endingTimestamp    before  endingOffsetsByTimestamp    before  endingOffsets
"""

import difflib
import json
import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from penstock.client import EARLIEST, LATEST, PATIENCE_MS, TopicCatalog, TopicInfo
from penstock.spark.errors import SparkOptionError
from penstock.spark.kafka_options import boolean_option, choice_option, integer_option, kafka_settings, option
from penstock.spark.source.offsets import ID_MARK, Partition

_log = logging.getLogger(__name__)
SUBSCRIBE, PATTERN, ASSIGN = "subscribe", "subscribePattern", "assign"
_WORDS = {"earliest": EARLIEST, "latest": LATEST}
_NAMES = {EARLIEST: "earliest", LATEST: "latest"}
ISOLATION = "isolation.level"
TRIGGER_DELAY = "15m"
_ENDINGS = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
OPTIONS = (
    "subscribe", "subscribePattern", "assign", "startingTimestamp", "startingOffsetsByTimestamp",
    "startingOffsets", "startingOffsetsByTimestampStrategy", *_ENDINGS, "failOnDataLoss", "includeHeaders",
    "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "minPartitions",
    "maxRecordsPerPartition", "group", "topicIds", "retryTimeoutMs", "loginFile",
)  # fmt: skip
# The official connector's, about consumers that do not exist here; and Spark's own.
WITHOUT_MEANING = (
    "kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs", "groupIdPrefix",
    "path", "checkpointLocation",
)  # fmt: skip
# Those of `valueFormat` are checked by penstock.spark.formats.
_ELSEWHERE = ("kafka.", "value")
_DURATION = re.compile(r"\s*(\d{1,12})\s*(ms|s|m|min|h|d)?\s*")
_UNITS_MS = {"ms": 1, None: 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


class TopicMissing(SparkOptionError):
    """A topic that is named does not exist."""


class TopicSelection(Protocol):
    """What one of the three options asked for."""

    def find(self, catalogue: TopicCatalog) -> dict[str, TopicInfo]:
        """The topics with those of their partitions that are read; TopicMissing if one does not exist."""


class SubscribeSelection:
    """`subscribe`: every partition of the topics, also those that are added later."""

    def __init__(self, topics: frozenset[str]) -> None:
        self._topics = topics

    def find(self, catalogue: TopicCatalog) -> dict[str, TopicInfo]:
        found = catalogue.topics(self._topics)
        _refuse_missing(SUBSCRIBE, self._topics, found)
        return found


class PatternSelection:
    """`subscribePattern`: the same for topics that match, also those that are created later."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self._pattern = pattern

    def find(self, catalogue: TopicCatalog) -> dict[str, TopicInfo]:
        return catalogue.matching(self._pattern)


class AssignSelection:
    """`assign`: these partitions and no others."""

    def __init__(self, partitions: Mapping[str, tuple[int, ...]]) -> None:
        self._partitions = partitions

    def find(self, catalogue: TopicCatalog) -> dict[str, TopicInfo]:
        found = catalogue.topics(self._partitions)
        _refuse_missing(ASSIGN, frozenset(self._partitions), found)
        for topic, partitions in self._partitions.items():
            for partition in partitions:
                if partition not in found[topic].partitions:
                    raise TopicMissing(
                        ASSIGN,
                        f"topic {topic} has {len(found[topic].partitions)} partitions, none is {partition}",
                    )
        return {topic: shape._replace(partitions=self._partitions[topic]) for topic, shape in found.items()}


def selection(options: Mapping[str, str]) -> TopicSelection:
    """The one of the three options that is given."""
    given = [name for name in (SUBSCRIBE, PATTERN, ASSIGN) if option(options, name) is not None]
    if len(given) != 1:
        say = f"only one of {' and '.join(given)} can be given" if given else "is required"
        raise SparkOptionError(
            given[0] if given else SUBSCRIBE, f"{say}: one of {SUBSCRIBE}, {PATTERN}, {ASSIGN}"
        )
    text = option(options, given[0], "")
    if given[0] == SUBSCRIBE:
        topics = frozenset(topic.strip() for topic in text.split(",") if topic.strip())
        if not topics:
            raise SparkOptionError(SUBSCRIBE, "names no topic")
        return SubscribeSelection(topics)
    return PatternSelection(_pattern(text)) if given[0] == PATTERN else AssignSelection(_assigned(text))


def _pattern(text: str) -> re.Pattern[str]:
    if not text.strip():
        raise SparkOptionError(PATTERN, "is empty")
    try:
        return re.compile(text.strip())
    except re.error as error:
        raise SparkOptionError(PATTERN, f"{text!r} is no regular expression: {error}") from None


def _assigned(text: str) -> dict[str, tuple[int, ...]]:
    like = 'expected JSON such as {"topic": [0, 1]}'
    try:
        parsed = json.loads(text)
    except ValueError:
        raise SparkOptionError(ASSIGN, f"{text!r} is no JSON; {like}") from None
    if not isinstance(parsed, dict) or not parsed:
        raise SparkOptionError(ASSIGN, f"{text!r} names no partitions; {like}")
    for topic, partitions in parsed.items():
        if not isinstance(partitions, list) or not all(type(one) is int and one >= 0 for one in partitions):
            raise SparkOptionError(ASSIGN, f"topic {topic}: {partitions!r} is no list of partitions; {like}")
    return {topic: tuple(sorted(set(partitions))) for topic, partitions in parsed.items()}


def _refuse_missing(name: str, wanted: frozenset[str], found: Mapping[str, TopicInfo]) -> None:
    missing = sorted(wanted - set(found))
    if missing:
        one = len(missing) == 1
        raise TopicMissing(
            name, f"topic{'' if one else 's'} {', '.join(missing)} do{'es' if one else ''} not exist"
        )


class OffsetOption(NamedTuple):
    """What one option says: the same for every partition, or something for each of them."""

    option: str
    everywhere: int | None = None
    each: Mapping[Partition, int] | None = None
    timed: bool = False
    # A timestamp after the last record: stands for the end of the log, or is an error.
    missing_is_latest: bool = True
    # An offset that the log does not hold: stands for the nearest one that it does, or is an error.
    nearest: bool = False


class ResolvedOffsets(NamedTuple):
    """Offsets, and those of them that are "the end of the log just now" and so cannot be found again."""

    positions: dict[Partition, int]
    momentary: frozenset[Partition]


def starting_position(options: Mapping[str, str], *, streaming: bool) -> OffsetOption:
    """Where to start: a stream at the end unless the options say otherwise, a batch at the beginning."""
    strategy = choice_option(options, "startingOffsetsByTimestampStrategy", ("error", "latest"), "error")
    found = _position(options, "starting", "latest" if streaming else "earliest")
    if not streaming:
        _refuse(found, LATEST)
    return found._replace(missing_is_latest=strategy == "latest", nearest=_may_lose(options))


def ending_position(options: Mapping[str, str]) -> OffsetOption:
    """Where a batch ends; a stream does not."""
    found = _position(options, "ending", "latest")
    _refuse(found, EARLIEST)
    return found._replace(nearest=_may_lose(options))


def _may_lose(options: Mapping[str, str]) -> bool:
    return not boolean_option(options, "failOnDataLoss", True)


def resolve(
    position: OffsetOption, partitions: Iterable[Partition], catalogue: TopicCatalog
) -> ResolvedOffsets:
    """The offset in each of the partitions; SparkOptionError where the position does not fit them."""
    wanted = _wanted(position, sorted(partitions))
    earliest, latest = catalogue.earliest(wanted), catalogue.latest(wanted)
    if position.timed:
        return _resolve_times(position, wanted, catalogue, latest)
    found = {}
    for one, offset in wanted.items():
        start, end = earliest[one], latest[one]
        if offset >= 0 and not start <= offset <= end:
            if position.nearest:
                _log.warning(
                    "%s/%d: offset %d is not in the log, which has %d to %d", *one, offset, start, end
                )
                found[one] = min(max(offset, start), end)
                continue
            raise SparkOptionError(
                position.option,
                f"{one[0]}/{one[1]}: offset {offset} is not in the log, which has {start} to {end}",
            )
        found[one] = {EARLIEST: start, LATEST: end}.get(offset, offset)
    return ResolvedOffsets(found, frozenset(one for one, offset in wanted.items() if offset == LATEST))


def _resolve_times(
    position: OffsetOption,
    wanted: Mapping[Partition, int],
    catalogue: TopicCatalog,
    latest: Mapping[Partition, int],
) -> ResolvedOffsets:
    found = catalogue.offsets(wanted)
    late = frozenset(one for one, offset in found.items() if offset < 0)
    if late and not position.missing_is_latest:
        topic, partition = min(late)
        raise SparkOptionError(
            position.option,
            f"{topic}/{partition} has no record at or after {wanted[topic, partition]};"
            " set startingOffsetsByTimestampStrategy to latest to start at the end there",
        )
    return ResolvedOffsets({one: latest[one] if one in late else found[one] for one in found}, late)


def _wanted(position: OffsetOption, partitions: list[Partition]) -> dict[Partition, int]:
    if position.everywhere is not None:
        return dict.fromkeys(partitions, position.everywhere)
    assert position.each is not None
    for what, some in (
        ("is missing", set(partitions) - set(position.each)),
        ("is not read by this query", set(position.each) - set(partitions)),
    ):
        if some:
            named = ", ".join(f"{topic}/{partition}" for topic, partition in sorted(some))
            raise SparkOptionError(
                position.option, f"{named} {what}; name every partition (-2 is earliest, -1 is latest)"
            )
    return dict(position.each)


def _position(options: Mapping[str, str], side: str, default: str) -> OffsetOption:
    timestamp, by_timestamp, offsets = f"{side}Timestamp", f"{side}OffsetsByTimestamp", f"{side}Offsets"
    moment_ms = integer_option(options, timestamp)
    if moment_ms is not None:
        return OffsetOption(timestamp, everywhere=moment_ms, timed=True)
    text = option(options, by_timestamp)
    if text is not None:
        return OffsetOption(by_timestamp, each=_each(by_timestamp, text, minimum=0), timed=True)
    text = option(options, offsets, default).strip()
    if text.lower() in _WORDS:
        return OffsetOption(offsets, everywhere=_WORDS[text.lower()])
    return OffsetOption(offsets, each=_each(offsets, text, minimum=EARLIEST))


def _each(name: str, text: str, minimum: int) -> dict[Partition, int]:
    like = f'expected {"earliest, latest or " if minimum < 0 else ""}JSON such as {{"topic": {{"0": 23}}}}'
    try:
        parsed = json.loads(text)
    except ValueError:
        raise SparkOptionError(name, f"{text!r} is no JSON; {like}") from None
    if not isinstance(parsed, dict):
        raise SparkOptionError(name, f"{text!r} names no topics; {like}")
    found = {}
    for topic, partitions in parsed.items():
        if not isinstance(partitions, dict):
            raise SparkOptionError(name, f"topic {topic}: {partitions!r} names no partitions; {like}")
        if ID_MARK in topic and not partitions:
            continue
        for partition, number in partitions.items():
            found[topic, _partition(name, topic, partition)] = _number(
                name, f"{topic}/{partition}", number, minimum
            )
    return found


def _partition(name: str, topic: str, text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise SparkOptionError(name, f"topic {topic}: {text!r} is no partition")
    return int(text)


def _number(name: str, where: str, number: Any, minimum: int) -> int:
    if type(number) is not int or number < minimum:
        what = "timestamp in ms" if minimum == 0 else "offset (-2 is earliest, -1 is latest)"
        raise SparkOptionError(name, f"{where}: {number!r} is no {what}")
    return number


def _refuse(position: OffsetOption, moment: int) -> None:
    """A batch cannot start at the end, nor end at the beginning."""
    everywhere = not position.timed and position.everywhere == moment
    if everywhere or moment in (position.each or {}).values():
        raise SparkOptionError(position.option, f"{_NAMES[moment]} makes no sense in a batch query")


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options of a query that reads topics."""

    settings: Mapping[str, str] = field(repr=False)
    selection: TopicSelection
    starting: OffsetOption
    ending: OffsetOption
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
    """Read and check all options; SparkOptionError names the first that cannot be."""
    refuse_unknown(options)
    if streaming:
        for name in _ENDINGS:
            if option(options, name) is not None:
                raise SparkOptionError(name, "a streaming query has no end; use a batch query (spark.read)")
    group = option(options, "group")
    if group is not None and not group.strip():
        raise SparkOptionError("group", "is empty")
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
    """The settings for librdkafka; only committed records are read unless somebody asks for more."""
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
        raise SparkOptionError(
            name, f"is not known; did you mean {known[close[0]]}?" if close else "is not known"
        )


def _duration_ms(options: Mapping[str, str], name: str, default: str) -> int:
    text = option(options, name, default)
    found = _DURATION.fullmatch(text.lower())
    if found is None:
        raise SparkOptionError(name, f"{text!r} is no duration such as 500ms, 30s, 15m or 1h")
    return int(found[1]) * _UNITS_MS[found[2]]
