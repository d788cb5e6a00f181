"""Client metrics subscriptions (KIP-714): which clients shall push which metrics, and how often.

A subscription is a config resource of the kind `client-metrics`:

    metrics=org.apache.kafka.producer.,org.apache.kafka.consumer.    prefixes of names, or * for all
    interval.ms=60000
    match=client_id=billing-.*,client_software_name=librdkafka        all have to match the whole text

A pattern is matched on the loop, so it is a regular expression without what can make one slow: no groups,
and two repetitions (`*` or `+`) at most in each alternative.
"""

import re
import zlib
from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from penstock.core.metadata.configs.definition import ConfigValue, split_list
from penstock.core.metadata.image import ConfigResourceType, MetadataImage

PUSH_INTERVAL_MS = 300_000
PUSH_INTERVAL_MS_MIN, PUSH_INTERVAL_MS_MAX = 100, 3_600_000
EVERY_METRIC = "*"
SELECTORS = (
    "client_id",
    "client_instance_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
PATTERN_LENGTH_MAX = 256
SELECTORS_MAX = 16
TEXT_LENGTH_MAX = 256
REPETITIONS_MAX = 2
# Escaped characters and classes in brackets hold no operators.
_LITERALS = re.compile(r"\\[^0-9A-Za-z]|\\[dDwWsS]|\[\^?\]?[^]\[]*\]")
_OPERATORS = re.compile(r"[(){}\\\[]")


class MetricsClient(NamedTuple):
    """What a subscription can select clients by."""

    instance_id: UUID
    client_id: str
    software_name: str
    software_version: str
    address: str
    port: str


class ClientSelector(NamedTuple):
    """One condition: a property of the client matches a pattern."""

    name: str
    pattern: "re.Pattern[str]"

    def matches(self, client: MetricsClient) -> bool:
        texts = (
            client.client_id,
            str(client.instance_id),
            client.software_name,
            client.software_version,
            client.address,
            client.port,
        )
        text = texts[SELECTORS.index(self.name)]
        return len(text) <= TEXT_LENGTH_MAX and self.pattern.fullmatch(text) is not None


class MetricsSubscription(NamedTuple):
    """One configured subscription."""

    name: str
    metrics: tuple[str, ...]
    interval_ms: int
    selectors: tuple[ClientSelector, ...]

    def applies_to(self, client: MetricsClient) -> bool:
        return all(selector.matches(client) for selector in self.selectors)


class ClientSubscription(NamedTuple):
    """What one client shall push: all subscriptions that apply to it, in one."""

    subscription_id: int
    metrics: tuple[str, ...]
    interval_ms: int


def problem_with_match(value: ConfigValue) -> str | None:
    """What is wrong with the value of `match`."""
    assert isinstance(value, tuple)
    try:
        _selectors(value)
    except ValueError as error:
        return str(error)
    return None


def subscriptions(image: MetadataImage) -> tuple[MetricsSubscription, ...]:
    """Every subscription of the cluster that asks for metrics, by name."""
    found: list[MetricsSubscription] = []
    for name in sorted(image.configured(ConfigResourceType.CLIENT_METRICS)):
        values = image.config(ConfigResourceType.CLIENT_METRICS, name)
        metrics = split_list(values.get("metrics", ""))
        try:
            selectors = _selectors(split_list(values.get("match", "")))
            interval_ms = int(values.get("interval.ms", PUSH_INTERVAL_MS))
        except ValueError:
            # Written by another version: nobody is asked for something that was not meant.
            continue
        if metrics:
            found.append(MetricsSubscription(name, metrics, interval_ms, selectors))
    return tuple(found)


def subscription_of(client: MetricsClient, configured: Sequence[MetricsSubscription]) -> ClientSubscription:
    """What a client shall push. Its id is the same on every broker, and changes with the subscriptions."""
    applied = [subscription for subscription in configured if subscription.applies_to(client)]
    metrics = tuple(sorted({metric for subscription in applied for metric in subscription.metrics}))
    if EVERY_METRIC in metrics:
        metrics = (EVERY_METRIC,)
    interval_ms = min((subscription.interval_ms for subscription in applied), default=PUSH_INTERVAL_MS)
    text = "\n".join((str(client.instance_id), str(interval_ms), *metrics))
    # 31 bits: the id is a signed number, and nothing is gained by negative ones.
    return ClientSubscription(zlib.crc32(text.encode()) & 0x7FFFFFFF, metrics, interval_ms)


def _selectors(items: Sequence[str]) -> tuple[ClientSelector, ...]:
    found = []
    if len(items) > SELECTORS_MAX:
        raise ValueError(f"must have at most {SELECTORS_MAX} selectors")
    for item in items:
        name, equals, pattern = item.partition("=")
        name = name.strip()
        if not equals or name not in SELECTORS:
            raise ValueError(f"must be a list of selector=pattern with selectors {', '.join(SELECTORS)}")
        found.append(ClientSelector(name, _compiled(pattern.strip())))
    return tuple(found)


def _compiled(pattern: str) -> "re.Pattern[str]":
    if len(pattern) > PATTERN_LENGTH_MAX:
        raise ValueError(f"must have patterns of at most {PATTERN_LENGTH_MAX} characters")
    bare = _LITERALS.sub("x", pattern)
    if _OPERATORS.search(bare):
        raise ValueError("must have patterns without groups, counts and references")
    if any(branch.count("*") + branch.count("+") > REPETITIONS_MAX for branch in bare.split("|")):
        raise ValueError(f"must have patterns with at most {REPETITIONS_MAX} repetitions")
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ValueError(f"must have valid patterns ({error})") from None
