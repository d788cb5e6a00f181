"""Where reading starts and ends: the official connector's options, by their precedence.

startingTimestamp  before  startingOffsetsByTimestamp  before  startingOffsets
endingTimestamp    before  endingOffsetsByTimestamp    before  endingOffsets
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from penstock.client import EARLIEST, LATEST, TopicCatalog
from penstock.pipeline.errors import BadOption
from penstock.pipeline.settings import choice_option, integer_option, option
from penstock.pipeline.source.offsets import ID_MARK, Partition

_WORDS = {"earliest": EARLIEST, "latest": LATEST}
_NAMES = {EARLIEST: "earliest", LATEST: "latest"}


class Position(NamedTuple):
    """What one option says: the same for every partition, or something for each of them."""

    option: str
    everywhere: int | None = None
    each: Mapping[Partition, int] | None = None
    timed: bool = False
    # A timestamp after the last record: stands for the end of the log, or is an error.
    missing_is_latest: bool = True


class Resolved(NamedTuple):
    """Offsets, and those of them that are "the end of the log just now" and so cannot be found again."""

    positions: dict[Partition, int]
    momentary: frozenset[Partition]


def starting_position(options: Mapping[str, str], *, streaming: bool) -> Position:
    """Where to start: a stream at the end unless told otherwise, a batch at the beginning."""
    strategy = choice_option(options, "startingOffsetsByTimestampStrategy", ("error", "latest"), "error")
    found = _position(options, "starting", "latest" if streaming else "earliest")
    if not streaming:
        _refuse(found, LATEST)
    return found._replace(missing_is_latest=strategy == "latest")


def ending_position(options: Mapping[str, str]) -> Position:
    """Where a batch ends; a stream does not."""
    found = _position(options, "ending", "latest")
    _refuse(found, EARLIEST)
    return found


def resolve(position: Position, partitions: Iterable[Partition], catalogue: TopicCatalog) -> Resolved:
    """The offset in each of the partitions; BadOption where the position does not fit them."""
    wanted = _wanted(position, sorted(partitions))
    earliest, latest = catalogue.earliest(wanted), catalogue.latest(wanted)
    if position.timed:
        return _resolve_times(position, wanted, catalogue, latest)
    found = {}
    for one, offset in wanted.items():
        start, end = earliest[one], latest[one]
        if offset >= 0 and not start <= offset <= end:
            raise BadOption(
                position.option,
                f"{one[0]}/{one[1]}: offset {offset} is not in the log, which has {start} to {end}",
            )
        found[one] = {EARLIEST: start, LATEST: end}.get(offset, offset)
    return Resolved(found, frozenset(one for one, offset in wanted.items() if offset == LATEST))


def _resolve_times(
    position: Position,
    wanted: Mapping[Partition, int],
    catalogue: TopicCatalog,
    latest: Mapping[Partition, int],
) -> Resolved:
    found = catalogue.offsets(wanted)
    late = frozenset(one for one, offset in found.items() if offset < 0)
    if late and not position.missing_is_latest:
        topic, partition = min(late)
        raise BadOption(
            position.option,
            f"{topic}/{partition} has no record at or after {wanted[topic, partition]};"
            " set startingOffsetsByTimestampStrategy to latest to start at the end there",
        )
    return Resolved({one: latest[one] if one in late else found[one] for one in found}, late)


def _wanted(position: Position, partitions: list[Partition]) -> dict[Partition, int]:
    if position.everywhere is not None:
        return dict.fromkeys(partitions, position.everywhere)
    assert position.each is not None
    for what, some in (
        ("is missing", set(partitions) - set(position.each)),
        ("is not read by this query", set(position.each) - set(partitions)),
    ):
        if some:
            named = ", ".join(f"{topic}/{partition}" for topic, partition in sorted(some))
            raise BadOption(
                position.option, f"{named} {what}; name every partition (-2 is earliest, -1 is latest)"
            )
    return dict(position.each)


def _position(options: Mapping[str, str], side: str, default: str) -> Position:
    timestamp, by_timestamp, offsets = f"{side}Timestamp", f"{side}OffsetsByTimestamp", f"{side}Offsets"
    moment_ms = integer_option(options, timestamp)
    if moment_ms is not None:
        return Position(timestamp, everywhere=moment_ms, timed=True)
    text = option(options, by_timestamp)
    if text is not None:
        return Position(by_timestamp, each=_each(by_timestamp, text, minimum=0), timed=True)
    text = option(options, offsets, default).strip()
    if text.lower() in _WORDS:
        return Position(offsets, everywhere=_WORDS[text.lower()])
    return Position(offsets, each=_each(offsets, text, minimum=EARLIEST))


def _each(name: str, text: str, minimum: int) -> dict[Partition, int]:
    like = f'expected {"earliest, latest or " if minimum < 0 else ""}JSON such as {{"topic": {{"0": 23}}}}'
    try:
        parsed = json.loads(text)
    except ValueError:
        raise BadOption(name, f"{text!r} is no JSON; {like}") from None
    if not isinstance(parsed, dict):
        raise BadOption(name, f"{text!r} names no topics; {like}")
    found = {}
    for topic, partitions in parsed.items():
        if not isinstance(partitions, dict):
            raise BadOption(name, f"topic {topic}: {partitions!r} names no partitions; {like}")
        if ID_MARK in topic and not partitions:
            continue
        for partition, number in partitions.items():
            found[topic, _partition(name, topic, partition)] = _number(
                name, f"{topic}/{partition}", number, minimum
            )
    return found


def _partition(name: str, topic: str, text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise BadOption(name, f"topic {topic}: {text!r} is no partition")
    return int(text)


def _number(name: str, where: str, number: Any, minimum: int) -> int:
    if type(number) is not int or number < minimum:
        what = "timestamp in ms" if minimum == 0 else "offset (-2 is earliest, -1 is latest)"
        raise BadOption(name, f"{where}: {number!r} is no {what}")
    return number


def _refuse(position: Position, moment: int) -> None:
    """A batch cannot start at the end, nor end at the beginning."""
    everywhere = not position.timed and position.everywhere == moment
    if everywhere or moment in (position.each or {}).values():
        raise BadOption(position.option, f"{_NAMES[moment]} makes no sense in a batch query")
