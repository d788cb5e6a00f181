"""What all decisions share: the controller's config, and a builder for facts and reply.

Each `decide_…` module takes the image as it is and returns a `Decision`; nothing there can
change anything, because images cannot change. Where a decision builds on facts it has just
made (a broker that is registered, then the partitions that may now have a leader), it works on
a `DecisionBuilder`: the image as if those facts were applied already.

Left out: moving replicas because brokers are unevenly full; placement counts partitions, not
bytes, and only when they are made.
"""

from collections.abc import Mapping
from dataclasses import field
from types import MappingProxyType
from typing import TypeAlias

from penstock.core.metadata.apply import apply
from penstock.core.metadata.commands import Reply
from penstock.core.metadata.image import MetadataImage
from penstock.core.metadata.records import Fact
from penstock.core.model import ApiError, Decision, ErrorKind
from penstock.core.values import dataclass

MetadataDecision: TypeAlias = Decision[Fact, Reply]


@dataclass(frozen=True, slots=True)
class ControllerConfig:
    """What a decision depends on besides the image: the controller's own settings."""

    static: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    # What fills the memory of every node.
    partitions_max: int = 200_000
    acls_max: int = 100_000
    credentials_max: int = 100_000
    api_keys_max: int = 100_000
    quota_entities_max: int = 100_000


class DecisionBuilder:
    """Facts that were decided so far, and the image as if they were applied."""

    __slots__ = ("facts", "image")

    def __init__(self, image: MetadataImage) -> None:
        self.image = image
        self.facts: list[Fact] = []

    def add(self, fact: Fact) -> None:
        self.image = apply(self.image, fact)
        self.facts.append(fact)

    def note(self, fact: Fact) -> None:
        """Add a fact without applying it, because nothing else in this decision depends on it."""
        self.facts.append(fact)

    def decision(self, reply: Reply, *, validate_only: bool = False) -> MetadataDecision:
        return Decision(() if validate_only else tuple(self.facts), reply)


def error_decision(kind: ErrorKind, detail: str = "") -> MetadataDecision:
    return Decision((), ApiError(kind, detail))
