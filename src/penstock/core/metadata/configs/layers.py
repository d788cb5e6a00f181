"""Where a value comes from: the resource itself, its broker, the cluster, a file, a default.

    retention.ms of topic "orders"
      own       retention.ms           set on the topic
      broker    log.retention.ms …     set on one broker while it ran
      cluster   log.retention.ms …     set on all brokers while they ran
      static    log.retention.hours …  in the node's configuration file
      default   log.retention.hours    168

The first layer that has the key, or a synonym of it, wins. Within a layer the synonyms
are tried in their order.
"""

import enum
from collections.abc import Collection, Iterator, Mapping
from dataclasses import field, replace
from types import MappingProxyType
from typing import NamedTuple

from penstock.core.metadata.configs.broker import GROUP_SETTINGS, LOG_SETTINGS, NODE_SETTINGS
from penstock.core.metadata.configs.client_metrics import CLIENT_METRICS_CONFIGS
from penstock.core.metadata.configs.definition import (
    ConfigDefinition,
    ConfigSynonym,
    ConfigType,
    ConfigValue,
    DynamicUpdateMode,
    InvalidConfigValue,
    by_name,
    shown,
)
from penstock.core.metadata.configs.group import GROUP_CONFIGS
from penstock.core.metadata.configs.refused import unknown_key
from penstock.core.metadata.configs.topic import TOPIC_CONFIGS
from penstock.core.metadata.image import ConfigResourceType
from penstock.core.values import dataclass

BROKER_CONFIGS = by_name(LOG_SETTINGS, GROUP_SETTINGS, NODE_SETTINGS)
_TABLES: Mapping[ConfigResourceType, Mapping[str, ConfigDefinition]] = {
    ConfigResourceType.TOPIC: TOPIC_CONFIGS,
    ConfigResourceType.BROKER: BROKER_CONFIGS,
    ConfigResourceType.CLIENT_METRICS: CLIENT_METRICS_CONFIGS,
    ConfigResourceType.GROUP: GROUP_CONFIGS,
}
NO_CONFIGS: Mapping[str, str] = MappingProxyType({})


def definitions(kind: ConfigResourceType) -> Mapping[str, ConfigDefinition]:
    """The keys of a kind of resource, sorted by name."""
    return _TABLES[kind]


def _nothing() -> Mapping[str, str]:
    return NO_CONFIGS


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
    ConfigResourceType.TOPIC: ConfigSource.TOPIC,
    ConfigResourceType.CLIENT_METRICS: ConfigSource.CLIENT_METRICS,
    ConfigResourceType.GROUP: ConfigSource.GROUP,
}


class LayerValue(NamedTuple):
    """A value that some layer has for a key, as it stands there."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigLayers:
    """The layers below one resource. A broker's own configuration is its `broker` layer."""

    kind: ConfigResourceType
    own: Mapping[str, str] = field(default_factory=_nothing)
    broker: Mapping[str, str] = field(default_factory=_nothing)
    cluster: Mapping[str, str] = field(default_factory=_nothing)
    static: Mapping[str, str] = field(default_factory=_nothing)
    # Defaults that depend on the resource, such as the minimum ISR on the replica count.
    defaults: Mapping[str, str] = field(default_factory=_nothing)

    def candidates(self, definition: ConfigDefinition) -> Iterator[LayerValue]:
        """What the layers have for a key, the one that counts first."""
        if definition.name in self.own:
            yield LayerValue(definition.name, self.own[definition.name], _OWN[self.kind])
        synonyms = self._names(definition)
        shared = (
            (self.broker, ConfigSource.BROKER),
            (self.cluster, ConfigSource.ALL_BROKERS),
            (self.static, ConfigSource.STATIC),
        )
        for layer, source in shared:
            for synonym in synonyms:
                if synonym.name in layer:
                    yield LayerValue(synonym.name, layer[synonym.name], source)
        yield from self._default(definition, synonyms)

    def text(self, definition: ConfigDefinition) -> str | None:
        """The value that counts, in the unit of the key itself."""
        first = next(self.candidates(definition), None)
        return None if first is None else self._translated(definition, first)

    def value(self, name: str) -> ConfigValue | None:
        """The typed value of a key that counts; None where a key has no default.

        A stored number that is out of range counts as the nearest that is not. What brokers have and nobody
        can read is passed over for the next layer; raises InvalidConfigValue if the resource itself has it.
        """
        definition = definitions(self.kind)[name]
        for candidate in self.candidates(definition):
            try:
                return self._parsed(definition, candidate)
            except InvalidConfigValue:
                if candidate.source in _OWN.values():
                    raise
        return None

    def is_passed_over(self, name: str) -> bool:
        """Whether somebody has set the key to what cannot be read."""
        definition = definitions(self.kind)[name]
        first = next(self.candidates(definition), None)
        try:
            return first is not None and self._parsed(definition, first) is None
        except InvalidConfigValue:
            return True

    def usable_value(self, name: str) -> ConfigValue | None:
        """Like `value`, but a stored value that the key cannot have is passed over for the next layer."""
        definition = definitions(self.kind)[name]
        for candidate in self.candidates(definition):
            try:
                return self._parsed(definition, candidate)
            except InvalidConfigValue:
                continue
        return None

    def not_allowed(self) -> Iterator[tuple[ConfigDefinition, LayerValue]]:
        """What is stored and would be refused today: other values count instead."""
        shared = (
            (BROKER_CONFIGS, self.broker, ConfigSource.BROKER),
            (BROKER_CONFIGS, self.cluster, ConfigSource.ALL_BROKERS),
        )
        own = (
            ()
            if self.kind is ConfigResourceType.BROKER
            else ((_TABLES[self.kind], self.own, _OWN[self.kind]),)
        )
        for table, values, source in (*own, *shared):
            for key, text in values.items():
                definition = table.get(key)
                if definition is not None and definition.problem(text) is not None:
                    yield definition, LayerValue(key, text, source)

    def _parsed(self, definition: ConfigDefinition, candidate: LayerValue) -> ConfigValue | None:
        try:
            text = self._translated(definition, candidate)
            return None if text is None else definition.nearest(text)
        except ValueError as error:
            raise InvalidConfigValue(candidate.name, candidate.value or "", str(error)) from None

    def _translated(self, definition: ConfigDefinition, candidate: LayerValue) -> str | None:
        """A candidate's value in the unit of the key itself."""
        if candidate.value is None or candidate.source in _OWN.values():
            return candidate.value
        factors = {synonym.name: synonym for synonym in self._names(definition)}
        synonym = factors.get(candidate.name)
        return candidate.value if synonym is None else synonym.translated(candidate.value)

    def _names(self, definition: ConfigDefinition) -> tuple[ConfigSynonym, ...]:
        if self.kind is ConfigResourceType.BROKER:
            return (ConfigSynonym(definition.name), *definition.synonyms)
        return definition.synonyms

    def _default(
        self, definition: ConfigDefinition, synonyms: tuple[ConfigSynonym, ...]
    ) -> Iterator[LayerValue]:
        special = self.defaults.get(definition.name)
        if special is not None:
            yield LayerValue(definition.name, special, ConfigSource.DEFAULT)
            return
        for synonym in synonyms:
            default = BROKER_CONFIGS[synonym.name].default
            if default is not None:
                yield LayerValue(synonym.name, default, ConfigSource.DEFAULT)
        if not synonyms and definition.default is not None:
            yield LayerValue(definition.name, definition.default, ConfigSource.DEFAULT)


@dataclass(frozen=True, slots=True)
class DescribedConfig:
    """One key of one resource: its value, where it comes from, and what it means.

    `synonyms` lists every layer that has a value, the one that counts first. Sensitive
    values are None, here and in the synonyms.
    """

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    sensitive: bool
    type: ConfigType
    documentation: str
    synonyms: tuple[LayerValue, ...]

    @property
    def is_default(self) -> bool:
        return self.source is ConfigSource.DEFAULT


def described(definition: ConfigDefinition, layers: ConfigLayers) -> DescribedConfig:
    """One key as it stands above these layers."""
    candidates = tuple(layers.candidates(definition))
    hidden = definition.sensitive
    if hidden:
        candidates = tuple(candidate._replace(value=None) for candidate in candidates)
    return DescribedConfig(
        name=definition.name,
        value=None if hidden else layers.text(definition),
        source=candidates[0].source if candidates else ConfigSource.DEFAULT,
        read_only=layers.kind is ConfigResourceType.BROKER
        and definition.update is DynamicUpdateMode.READ_ONLY,
        sensitive=hidden,
        type=definition.type,
        documentation=definition.documentation,
        synonyms=candidates,
    )


def describe_all(layers: ConfigLayers, keys: tuple[str, ...] | None = None) -> tuple[DescribedConfig, ...]:
    """Every key of the resource, or the ones asked for that exist, sorted by name."""
    table = definitions(layers.kind)
    wanted = table if keys is None else sorted({key for key in keys if key in table})
    return tuple(described(table[name], layers) for name in wanted)


def problem_with(
    layers: ConfigLayers, values: Mapping[str, str], changed: Collection[str] | None = None
) -> str | None:
    """What is wrong with the new values of a resource, which `layers` has as its own; None if nothing is.

    Values that are not `changed` are not judged: another version may have stored them, and one that is wrong
    must not keep the others from being corrected. Two settings are compared where one of them is set.
    """
    table = definitions(layers.kind)
    judged = {key: text for key, text in values.items() if changed is None or key in changed}
    for key, text in judged.items():
        definition = table.get(key)
        if definition is None:
            return unknown_key(layers.kind, key)
        complaint = definition.problem(text)
        if complaint is not None:
            return complaint
    return next(contradictions(layers, judged), None)


def contradictions(layers: ConfigLayers, keys: Collection[str]) -> Iterator[str]:
    """What two settings of a resource ask for that cannot be, where one of them is among `keys`."""
    if layers.kind is ConfigResourceType.TOPIC:
        policies = layers.usable_value("cleanup.policy")
        if isinstance(policies, tuple) and {"compact", "consumed"} <= set(policies):
            yield "cleanup.policy cannot be compact and consumed at once"
    for order, least, most in broken_orders(layers, keys):
        yield f"{order.lower} ({least}) {order.words} {order.upper} ({most})"
    if layers.kind is ConfigResourceType.GROUP:
        brokers = replace(layers, kind=ConfigResourceType.BROKER, own=NO_CONFIGS)
        for key, lowest, highest in _BOUNDED_BY_BROKERS:
            least, most = _number(brokers, lowest), _number(brokers, highest)
            if key in keys and not least <= _number(layers, key) <= most:
                value = shown(layers.own[key])
                yield f"{key} must lie between the brokers' bounds, {least} and {most}, not {value}"


class ConfigOrder(NamedTuple):
    """Two keys, the first of which must not be above the second; perhaps not even equal."""

    lower: str
    upper: str
    may_be_equal: bool = True

    @property
    def words(self) -> str:
        return "must not be above" if self.may_be_equal else "must be below"


def broken_orders(layers: ConfigLayers, keys: Collection[str]) -> Iterator[tuple[ConfigOrder, int, int]]:
    """The pairs of keys that are in the wrong order, with their values, where one is among `keys`."""
    for order in _ORDERED.get(layers.kind, ()):
        if order.lower in keys or order.upper in keys:
            least, most = _number(layers, order.lower), _number(layers, order.upper)
            if least > most or (least == most and not order.may_be_equal):
                yield order, least, most


def _timeouts(kind: str) -> Iterator[ConfigOrder]:
    """What the timeouts of groups of one kind must be like, for brokers."""
    yield ConfigOrder(f"group.{kind}.heartbeat.interval.ms", f"group.{kind}.session.timeout.ms", False)
    for name in ("session.timeout.ms", "heartbeat.interval.ms"):
        yield ConfigOrder(f"group.{kind}.min.{name}", f"group.{kind}.max.{name}")
        yield ConfigOrder(f"group.{kind}.min.{name}", f"group.{kind}.{name}")
        yield ConfigOrder(f"group.{kind}.{name}", f"group.{kind}.max.{name}")


_LOCK = "record.lock.duration.ms"
_ORDERED: Mapping[ConfigResourceType, tuple[ConfigOrder, ...]] = {
    ConfigResourceType.TOPIC: (ConfigOrder("min.compaction.lag.ms", "max.compaction.lag.ms"),),
    ConfigResourceType.BROKER: (
        ConfigOrder("log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"),
        ConfigOrder("group.min.session.timeout.ms", "group.max.session.timeout.ms"),
        *_timeouts("consumer"),
        *_timeouts("share"),
        ConfigOrder(f"group.share.min.{_LOCK}", f"group.share.max.{_LOCK}"),
        ConfigOrder(f"group.share.min.{_LOCK}", f"group.share.{_LOCK}"),
        ConfigOrder(f"group.share.{_LOCK}", f"group.share.max.{_LOCK}"),
        ConfigOrder("group.queue.backoff.ms", "group.queue.backoff.max.ms"),
    ),
    ConfigResourceType.GROUP: (
        ConfigOrder("consumer.heartbeat.interval.ms", "consumer.session.timeout.ms", False),
        ConfigOrder("share.heartbeat.interval.ms", "share.session.timeout.ms", False),
        ConfigOrder("queue.backoff.ms", "queue.backoff.max.ms"),
    ),
}
_BOUNDED_BY_BROKERS = tuple(
    (f"{kind}.{name}", f"group.{kind}.min.{name}", f"group.{kind}.max.{name}")
    for kind, names in (
        ("consumer", ("session.timeout.ms", "heartbeat.interval.ms")),
        ("share", ("session.timeout.ms", "heartbeat.interval.ms", _LOCK)),
    )
    for name in names
)


def _number(layers: ConfigLayers, key: str) -> int:
    value = layers.usable_value(key)
    assert isinstance(value, int), key
    return value
