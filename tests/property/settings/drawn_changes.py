"""Changes of settings drawn at random: good values, borders, nonsense; alone and together."""

import random
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from penstock.core.metadata import ConfigOperation, ConfigResourceType
from penstock.core.metadata.configs import (
    REFUSED_CONFIGS,
    ConfigDefinition,
    ConfigType,
    DynamicUpdateMode,
    definitions,
)

INT32_MAX, INT64_MAX = 2**31 - 1, 2**63 - 1
NUMBERS = (ConfigType.INT, ConfigType.SHORT, ConfigType.LONG)
# Round these lie what is allowed and what is not, for one key or another.
BORDERS = tuple(
    around + step
    for around in (-1, 0, 1, 64, 100, 512, 1_000, 4_096, 1 << 20, 43_200_000, INT32_MAX, INT64_MAX)
    for step in (-1, 0, 1)
)
NONSENSE = (
    "",
    " ",
    "-2",
    "-0",
    "+7",
    " 7 ",
    "1.5",
    "1e9",
    "1_000",
    "0x10",
    "\N{ARABIC-INDIC DIGIT FIVE}",
    "NaN",
    "inf",
    "-inf",
    "null",
    "true",
    "FALSE",
    "yes",
    ",",
    "compact,consumed",
    "delete,delete",
    "\x00",
    "\N{PILE OF POO}",
    str(2**63),
    str(-(2**63) - 1),
    "9" * 41,
    "x" * 40_000,
)
WORDS = (
    "delete",
    "compact",
    "compact,delete",
    "consumed",
    "consumed,delete",
    "producer",
    "none",
    "zstd",
    "lz4",
    "snappy",
    "gzip",
    "CreateTime",
    "LogAppendTime",
    "header",
    "deep",
    "earliest",
    "latest",
    "true",
    "false",
    "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    "org.apache.kafka.common.replica.LeaderSelector",
)


class DrawnKey(NamedTuple):
    """What is done with one key."""

    operation: ConfigOperation
    key: str
    value: str | None


class DrawnChange(NamedTuple):
    """Changes of one resource, in one request."""

    kind: ConfigResourceType
    name: str
    keys: tuple[DrawnKey, ...]
    # With AlterConfigs, which replaces all that there is, or key by key.
    is_whole: bool
    validate_only: bool


class ChangeDrawer:
    """Draws changes of the resources of one cluster."""

    def __init__(
        self, luck: random.Random, resources: Mapping[ConfigResourceType, Sequence[str]], hostile: float = 0.4
    ) -> None:
        self._luck = luck
        self._resources = resources
        self._hostile = hostile

    def draw(self) -> DrawnChange:
        luck = self._luck
        kind = luck.choices(list(self._resources), [5, 5, 3, 1])[0]
        name = luck.choice(self._resources[kind])
        count = luck.choices((1, 2, 3, 6), (6, 2, 1, 1))[0]
        keys = {self._key(kind).name: None for _ in range(count)}
        changes = tuple(self._change(kind, key) for key in keys)
        return DrawnChange(kind, name, changes, luck.random() < 0.15, luck.random() < 0.1)

    def configs(self) -> dict[str, str]:
        """Settings for a topic that is created."""
        kind = ConfigResourceType.TOPIC
        keys = {self._key(kind).name: None for _ in range(self._luck.choice((0, 1, 3)))}
        return {key: self.value(definitions(kind)[key]) for key in keys}

    def _key(self, kind: ConfigResourceType) -> ConfigDefinition:
        table = list(definitions(kind).values())
        if kind is ConfigResourceType.BROKER and self._luck.random() < 0.9:
            table = [one for one in table if one.update is not DynamicUpdateMode.READ_ONLY]
        return self._luck.choice(table)

    def _change(self, kind: ConfigResourceType, key: str) -> DrawnKey:
        luck = self._luck
        if luck.random() < 0.02:
            unknown = luck.choice(["", "no.such.key", *REFUSED_CONFIGS[kind]])
            return DrawnKey(ConfigOperation.SET, unknown, "1")
        operation = luck.choices(list(ConfigOperation), (7, 2, 1, 1))[0]
        value = None if luck.random() < 0.03 else self.value(definitions(kind)[key])
        return DrawnKey(operation, key, value)

    def value(self, definition: ConfigDefinition) -> str:
        """A value for a key: most are of its type, and many of them allowed."""
        luck = self._luck
        if luck.random() < self._hostile / 4:
            return luck.choice(NONSENSE)
        if definition.type is ConfigType.BOOLEAN:
            return luck.choice(("true", "false"))
        if definition.type is ConfigType.DOUBLE:
            return luck.choice(("0", "1", "0.5", "-0.1", "1.1", "1e-300", str(luck.random())))
        if definition.type not in NUMBERS:
            return luck.choice([*WORDS, definition.default or ""])
        for _ in range(luck.choice((1, 1, 5))):
            border = luck.random() < self._hostile
            drawn = str(luck.choice(BORDERS) if border else int(10 ** luck.uniform(0, 19)))
            if definition.problem(drawn) is None:
                break
        return drawn
