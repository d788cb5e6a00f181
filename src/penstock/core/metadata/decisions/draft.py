"""Facts in the making."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeAlias

from penstock.core.metadata.applying import applied
from penstock.core.metadata.facts import Fact
from penstock.core.metadata.image import MetadataImage
from penstock.core.metadata.replies import Reply
from penstock.core.model import Decision, Refused, Why

MetadataDecision: TypeAlias = Decision[Fact, Reply]


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a decision may look at besides the image: the controller's own settings."""

    static: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    # One command must not stall the loop, nor fill the memory of every node.
    partitions_per_command_max: int = 10_000
    partitions_max: int = 200_000


class Draft:
    """Facts that were decided so far, and the image as if they were applied."""

    __slots__ = ("facts", "image")

    def __init__(self, image: MetadataImage) -> None:
        self.image = image
        self.facts: list[Fact] = []

    def add(self, fact: Fact) -> None:
        self.image = applied(self.image, fact)
        self.facts.append(fact)

    def note(self, fact: Fact) -> None:
        """Add a fact that nothing else in this decision looks at: applying it would be for nothing."""
        self.facts.append(fact)

    def decision(self, reply: Reply, *, validate_only: bool = False) -> MetadataDecision:
        return Decision(() if validate_only else tuple(self.facts), reply)


def refused(why: Why, detail: str = "") -> MetadataDecision:
    return Decision((), Refused(why, detail))
