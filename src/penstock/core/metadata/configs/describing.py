"""What a client is told about a configuration key."""

from dataclasses import dataclass

from penstock.core.metadata.configs.definition import ConfigDefinition, ConfigType, Update
from penstock.core.metadata.configs.layers import Candidate, ConfigSource, Layers
from penstock.core.metadata.configs.registry import definitions
from penstock.core.metadata.state import ResourceKind


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
    synonyms: tuple[Candidate, ...]

    @property
    def is_default(self) -> bool:
        return self.source is ConfigSource.DEFAULT


def described(definition: ConfigDefinition, layers: Layers) -> DescribedConfig:
    """One key as it stands above these layers."""
    candidates = tuple(layers.candidates(definition))
    hidden = definition.sensitive
    if hidden:
        candidates = tuple(candidate._replace(value=None) for candidate in candidates)
    return DescribedConfig(
        name=definition.name,
        value=None if hidden else layers.text(definition),
        source=candidates[0].source if candidates else ConfigSource.DEFAULT,
        read_only=layers.kind is ResourceKind.BROKER and definition.update is Update.READ_ONLY,
        sensitive=hidden,
        type=definition.type,
        documentation=definition.documentation,
        synonyms=candidates,
    )


def describe_all(layers: Layers, keys: tuple[str, ...] | None = None) -> tuple[DescribedConfig, ...]:
    """Every key of the resource, or the ones asked for that exist, sorted by name."""
    table = definitions(layers.kind)
    wanted = table if keys is None else sorted({key for key in keys if key in table})
    return tuple(described(table[name], layers) for name in wanted)
