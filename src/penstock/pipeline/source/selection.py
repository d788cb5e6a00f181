"""Which partitions a query reads: `subscribe`, `subscribePattern` or `assign`."""

import json
import re
from collections.abc import Mapping
from typing import Protocol

from penstock.client import TopicCatalog, TopicInfo
from penstock.pipeline.errors import BadOption
from penstock.pipeline.settings import option

SUBSCRIBE, PATTERN, ASSIGN = "subscribe", "subscribePattern", "assign"


class TopicMissing(BadOption):
    """A topic that is named does not exist."""


class Selection(Protocol):
    """What one of the three options asked for."""

    def find(self, catalogue: TopicCatalog) -> dict[str, TopicInfo]:
        """The topics with those of their partitions that are read; TopicMissing if one does not exist."""


class Named:
    """`subscribe`: every partition of the topics, also those that are added later."""

    def __init__(self, topics: frozenset[str]) -> None:
        self._topics = topics

    def find(self, catalogue: TopicCatalog) -> dict[str, TopicInfo]:
        found = catalogue.topics(self._topics)
        _refuse_missing(SUBSCRIBE, self._topics, found)
        return found


class Matching:
    """`subscribePattern`: the same for topics that match, also those that are created later."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self._pattern = pattern

    def find(self, catalogue: TopicCatalog) -> dict[str, TopicInfo]:
        return catalogue.matching(self._pattern)


class Assigned:
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


def selection(options: Mapping[str, str]) -> Selection:
    """The one of the three options that is given."""
    given = [name for name in (SUBSCRIBE, PATTERN, ASSIGN) if option(options, name) is not None]
    if len(given) != 1:
        say = f"only one of {' and '.join(given)} can be given" if given else "is required"
        raise BadOption(given[0] if given else SUBSCRIBE, f"{say}: one of {SUBSCRIBE}, {PATTERN}, {ASSIGN}")
    text = option(options, given[0], "")
    if given[0] == SUBSCRIBE:
        topics = frozenset(topic.strip() for topic in text.split(",") if topic.strip())
        if not topics:
            raise BadOption(SUBSCRIBE, "names no topic")
        return Named(topics)
    return Matching(_pattern(text)) if given[0] == PATTERN else Assigned(_assigned(text))


def _pattern(text: str) -> re.Pattern[str]:
    if not text.strip():
        raise BadOption(PATTERN, "is empty")
    try:
        return re.compile(text.strip())
    except re.error as error:
        raise BadOption(PATTERN, f"{text!r} is no regular expression: {error}") from None


def _assigned(text: str) -> dict[str, tuple[int, ...]]:
    like = 'expected JSON such as {"topic": [0, 1]}'
    try:
        parsed = json.loads(text)
    except ValueError:
        raise BadOption(ASSIGN, f"{text!r} is no JSON; {like}") from None
    if not isinstance(parsed, dict) or not parsed:
        raise BadOption(ASSIGN, f"{text!r} names no partitions; {like}")
    for topic, partitions in parsed.items():
        if not isinstance(partitions, list) or not all(type(one) is int and one >= 0 for one in partitions):
            raise BadOption(ASSIGN, f"topic {topic}: {partitions!r} is no list of partitions; {like}")
    return {topic: tuple(sorted(set(partitions))) for topic, partitions in parsed.items()}


def _refuse_missing(name: str, wanted: frozenset[str], found: Mapping[str, TopicInfo]) -> None:
    missing = sorted(wanted - set(found))
    if missing:
        one = len(missing) == 1
        raise TopicMissing(
            name, f"topic{'' if one else 's'} {', '.join(missing)} do{'es' if one else ''} not exist"
        )
