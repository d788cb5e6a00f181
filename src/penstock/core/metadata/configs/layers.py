"""Where a value comes from: the resource itself, its broker, the cluster, a file, a default.

    retention.ms of topic "orders"
      own       retention.ms           set on the topic
      broker    log.retention.ms …     set on one broker while it ran
      cluster   log.retention.ms …     set on all brokers while they ran
      static    log.retention.hours …  in the node's configuration file
      default   log.retention.hours    168

The first layer that has the key, or a synonym of it, wins. Within a layer the synonyms
are asked in their order.
"""

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from penstock.core.metadata.configs.definition import (
    ConfigDefinition,
    ConfigValue,
    InvalidConfigValue,
    Synonym,
)
from penstock.core.metadata.configs.registry import BROKER_CONFIGS, definitions
from penstock.core.metadata.state import ResourceKind

NOTHING: Mapping[str, str] = MappingProxyType({})


def _nothing() -> Mapping[str, str]:
    return NOTHING


class ConfigSource(enum.IntEnum):
    """The layer that a value comes from; numbered as Kafka numbers them."""

    TOPIC = 1
    BROKER = 2
    ALL_BROKERS = 3
    STATIC = 4
    DEFAULT = 5
    CLIENT_METRICS = 7
    GROUP = 8


_OWN = {
    ResourceKind.TOPIC: ConfigSource.TOPIC,
    ResourceKind.CLIENT_METRICS: ConfigSource.CLIENT_METRICS,
    ResourceKind.GROUP: ConfigSource.GROUP,
}


class Candidate(NamedTuple):
    """A value that some layer has for a key, as it stands there."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class Layers:
    """The layers below one resource. A broker's own configuration is its `broker` layer."""

    kind: ResourceKind
    own: Mapping[str, str] = field(default_factory=_nothing)
    broker: Mapping[str, str] = field(default_factory=_nothing)
    cluster: Mapping[str, str] = field(default_factory=_nothing)
    static: Mapping[str, str] = field(default_factory=_nothing)
    # Defaults that depend on the resource, such as the minimum ISR on the replica count.
    defaults: Mapping[str, str] = field(default_factory=_nothing)

    def candidates(self, definition: ConfigDefinition) -> Iterator[Candidate]:
        """What the layers have for a key, the one that counts first."""
        if definition.name in self.own:
            yield Candidate(definition.name, self.own[definition.name], _OWN[self.kind])
        synonyms = self._names(definition)
        shared = (
            (self.broker, ConfigSource.BROKER),
            (self.cluster, ConfigSource.ALL_BROKERS),
            (self.static, ConfigSource.STATIC),
        )
        for layer, source in shared:
            for synonym in synonyms:
                if synonym.name in layer:
                    yield Candidate(synonym.name, layer[synonym.name], source)
        yield from self._default(definition, synonyms)

    def text(self, definition: ConfigDefinition) -> str | None:
        """The value that counts, in the unit of the key itself."""
        first = next(self.candidates(definition), None)
        return None if first is None else self._translated(definition, first)

    def value(self, name: str) -> ConfigValue | None:
        """The typed value of a key that counts; None where a key has no default.

        Raises InvalidConfigValue if what is stored is nothing that the key can have.
        """
        definition = definitions(self.kind)[name]
        first = next(self.candidates(definition), None)
        return None if first is None else self._parsed(definition, first)

    def usable_value(self, name: str) -> ConfigValue | None:
        """Like `value`, but a stored value that the key cannot have is passed over for the next layer."""
        definition = definitions(self.kind)[name]
        for candidate in self.candidates(definition):
            try:
                return self._parsed(definition, candidate)
            except InvalidConfigValue:
                continue
        return None

    def _parsed(self, definition: ConfigDefinition, candidate: Candidate) -> ConfigValue | None:
        try:
            text = self._translated(definition, candidate)
            return None if text is None else definition.parse(text)
        except ValueError as error:
            raise InvalidConfigValue(candidate.name, candidate.value or "", str(error)) from None

    def _translated(self, definition: ConfigDefinition, candidate: Candidate) -> str | None:
        """A candidate's value in the unit of the key itself."""
        if candidate.value is None or candidate.source in _OWN.values():
            return candidate.value
        factors = {synonym.name: synonym for synonym in self._names(definition)}
        synonym = factors.get(candidate.name)
        return candidate.value if synonym is None else synonym.translated(candidate.value)

    def _names(self, definition: ConfigDefinition) -> tuple[Synonym, ...]:
        if self.kind is ResourceKind.BROKER:
            return (Synonym(definition.name), *definition.synonyms)
        return definition.synonyms

    def _default(self, definition: ConfigDefinition, synonyms: tuple[Synonym, ...]) -> Iterator[Candidate]:
        special = self.defaults.get(definition.name)
        if special is not None:
            yield Candidate(definition.name, special, ConfigSource.DEFAULT)
            return
        for synonym in synonyms:
            default = BROKER_CONFIGS[synonym.name].default
            if default is not None:
                yield Candidate(synonym.name, default, ConfigSource.DEFAULT)
        if not synonyms and definition.default is not None:
            yield Candidate(definition.name, definition.default, ConfigSource.DEFAULT)
