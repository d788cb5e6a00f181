"""Answers with one row per partition, under their topics, and what each row says."""

from collections.abc import Iterable, Sequence
from typing import TypeVar

from penstock.core.model import Refused, Why
from penstock.core.protocol import ErrorCode
from penstock.gateways.kafka.refusals import code_of, message_of

Row = TypeVar("Row")


def by_topic(rows: Iterable[tuple[str, Row]]) -> list[tuple[str, tuple[Row, ...]]]:
    """The rows of each topic, topics in the order in which they first occur."""
    topics: dict[str, list[Row]] = {}
    for name, row in rows:
        topics.setdefault(name, []).append(row)
    return [(name, tuple(parts)) for name, parts in topics.items()]


def told(outcome: object) -> tuple[ErrorCode, str | None]:
    """How an outcome is told: the code and a message, if it was refused."""
    return (code_of(outcome), message_of(outcome)) if isinstance(outcome, Refused) else (ErrorCode.NONE, None)


def shared_code(outcomes: Sequence[object]) -> tuple[ErrorCode, str | None]:
    """What the answer says as a whole: that nobody leads, if that is why everything was refused.

    Clients look for the controller and ask again when they read it there, not in the rows.
    """
    if outcomes and all(_is_leaderless(outcome) for outcome in outcomes):
        return told(outcomes[0])
    return ErrorCode.NONE, None


def _is_leaderless(outcome: object) -> bool:
    return isinstance(outcome, Refused) and outcome.why is Why.NOT_CONTROLLER
