"""What replicated machines have in common: when they decide, and what comes of it."""

from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from penstock.core.model.moments import Instant, Timestamp

Fact_co = TypeVar("Fact_co", covariant=True)
Reply_co = TypeVar("Reply_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Decision(Generic[Fact_co, Reply_co]):
    """What becomes true, and what to answer once it is durable.

    Deciding changes nothing: the host appends `facts`, applies them, and releases
    `reply` when the log end it saw at the decision is committed.
    """

    facts: tuple[Fact_co, ...]
    reply: Reply_co


class Now(NamedTuple):
    """The present on both clocks: deadlines are monotonic, what is stored is wall-clock time."""

    instant: Instant
    wall: Timestamp
