"""What the commands are told to act on: partitions, nodes, plans, rates."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock.core.model import PenstockError

PLAN_BYTES_MAX = 64 << 20
UNITS = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30}
# (topic, partition) -> the nodes that shall hold it, the preferred leader first.
Plan = dict[tuple[str, int], tuple[int, ...]]
# Topic -> its partitions, each with the nodes that hold it.
Layout = Mapping[str, Mapping[int, tuple[int, ...]]]


class BadTarget(PenstockError):
    """Something to act on that is not there, or is not written as it must be."""


def chosen(texts: Sequence[str], layout: Layout) -> list[tuple[str, int]]:
    """The partitions that `TOPIC` and `TOPIC:PARTITION` stand for."""
    found: dict[tuple[str, int], None] = {}
    for text in texts:
        found |= dict.fromkeys(_partitions(text, layout))
    return list(found)


def _partitions(text: str, layout: Layout) -> list[tuple[str, int]]:
    if text in layout:
        return [(text, partition) for partition in sorted(layout[text])]
    # A topic's name has no colon.
    topic, colon, number = text.rpartition(":")
    if not colon:
        raise BadTarget(f"there is no topic {text}")
    if topic not in layout:
        raise BadTarget(f"there is no topic {topic}")
    if not (number.isascii() and number.isdigit()) or int(number) not in layout[topic]:
        raise BadTarget(f"topic {topic} has no partition {number or '(empty)'}")
    return [(topic, int(number))]


def nodes(flag: str, text: str) -> tuple[int, ...]:
    """Read `1,2,3`."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise BadTarget(f"{flag} {text}: expected node ids, as in {flag} 1,2,3")
    found = tuple(int(part) for part in parts)
    if len(frozenset(found)) != len(found):
        raise BadTarget(f"{flag} {text}: names a node twice")
    return found


def spread(partitions: Sequence[tuple[str, int]], replicas: tuple[int, ...]) -> Plan:
    """The same nodes for each partition; each goes one further for its preferred leader."""
    plan: Plan = {}
    for topic, partition in partitions:
        at = partition % len(replicas) if len(partitions) > 1 else 0
        plan[topic, partition] = replicas[at:] + replicas[:at]
    return plan


def read_plan(path: str) -> Plan:
    """Read a plan in the form that Kafka's own tool writes and reads."""
    try:
        content = Path(path).read_bytes()[: PLAN_BYTES_MAX + 1]
        given = json.loads(content)
        rows = given["partitions"]
        plan = {(row["topic"], row["partition"]): tuple(row["replicas"]) for row in rows}
    except OSError as error:
        raise BadTarget(f"{path}: {error.strerror or error}") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise BadTarget(
            f'{path} is no plan: expected {{"version": 1, "partitions": '
            '[{"topic": "t", "partition": 0, "replicas": [1, 2, 3]}]}'
        ) from None
    if not plan:
        raise BadTarget(f"{path} moves nothing")
    if len(plan) != len(rows):
        raise BadTarget(f"{path} names a partition twice")
    for (topic, partition), replicas in plan.items():
        if not (
            isinstance(topic, str) and _is_number(partition) and replicas and all(map(_is_number, replicas))
        ):
            raise BadTarget(f"{path}: {topic}:{partition} has no list of node ids")
    return plan


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def bytes_per_second(flag: str, text: str) -> int:
    """Read `10485760`, `10M` or `10Mi`, with or without `B/s`."""
    plain = text.strip().lower().removesuffix("/s").removesuffix("b")
    digits = plain.rstrip("kmgi")
    factor = UNITS.get(plain[len(digits) :])
    if factor is None or not (digits.isascii() and digits.isdigit()) or not int(digits):
        raise BadTarget(f"{flag} {text}: expected bytes per second, as in {flag} 50M")
    return int(digits) * factor
