"""The result of a replicated machine's decision."""

from dataclasses import dataclass
from typing import Generic, TypeVar

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
