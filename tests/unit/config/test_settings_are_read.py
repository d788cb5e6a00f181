"""Nothing is parsed, shown and ignored: somebody reads every key, or it can only have its default."""

import ast
import inspect
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path

import pytest

import penstock
from penstock.config import SETTINGS, load, override
from penstock.core.metadata import ConfigResourceType
from penstock.core.metadata.configs import (
    BROKER_CONFIGS,
    TOPIC_CONFIGS,
    ConfigLayers,
    ConfigValue,
    DynamicUpdateMode,
    TopicOptions,
    definitions,
    topic_options,
)
from penstock.node import static_settings
from penstock.node.options import node_facts
from penstock.storage.log import LogOptions

SOURCE = Path(penstock.__file__).parent
CODECS = ("producer", "gzip", "lz4", "zstd", "snappy")
# Set by the test suite of librdkafka, and about Kerberos, which is not offered: it comes to nothing in
# Kafka too without it.
INERT = {"sasl.kerberos.min.time.before.relogin"}


@dataclass(frozen=True, slots=True)
class Module:
    """What a source file reads: attributes with the name before the dot, and texts."""

    path: Path
    attributes: frozenset[tuple[str, str]]
    texts: frozenset[str]
    names: frozenset[str]


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


@cache
def modules() -> tuple[Module, ...]:
    return tuple(_read(path) for path in sorted(SOURCE.rglob("*.py")))


def _read(path: Path) -> Module:
    nodes = list(ast.walk(ast.parse(path.read_text())))
    loaded = [node for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)]
    return Module(
        path,
        frozenset((_name(node.value), node.attr) for node in loaded),
        frozenset(
            node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)
        ),
        frozenset(node.id for node in nodes if isinstance(node, ast.Name)),
    )


def texts_of_readers() -> set[str]:
    """Every text outside the tables of keys, and of what shows the node's settings under those keys."""
    shown = Path(inspect.getfile(static_settings))
    readers = [m for m in modules() if "ConfigDefinition" not in m.names and m.path != shown]
    return {text for module in readers for text in module.texts}


@dataclass(frozen=True)
class Recorder(ConfigLayers):
    """Layers that remember what they were asked for."""

    asked: list[str] = field(default_factory=list)

    def value(self, name: str) -> ConfigValue | None:
        self.asked.append(name)
        return super().value(name)


def keys_of_topic_options() -> set[str]:
    asked: list[str] = []
    for codec in CODECS:
        topic_options(Recorder(ConfigResourceType.TOPIC, own={"compression.type": codec}, asked=asked))
    return set(asked)


def read_keys(kind: ConfigResourceType) -> set[str]:
    by_topics = keys_of_topic_options()
    if kind is ConfigResourceType.TOPIC:
        return by_topics | texts_of_readers()
    if kind is not ConfigResourceType.BROKER:
        return texts_of_readers()
    followed = [TOPIC_CONFIGS[key] for key in by_topics | (texts_of_readers() & TOPIC_CONFIGS.keys())]
    groups = definitions(ConfigResourceType.GROUP)
    followed += [groups[key] for key in texts_of_readers() & groups.keys() if groups[key].fixed is None]
    return texts_of_readers() | {synonym.name for each in followed for synonym in each.synonyms}


def facts() -> dict[str, str]:
    """What a node that says everything of itself shows."""
    return node_facts(load(overrides=[override("--set", "node.rack=a")]).config)


def free_keys(kind: ConfigResourceType) -> Iterator[str]:
    return (name for name, definition in definitions(kind).items() if definition.fixed is None)


@pytest.mark.parametrize("kind", list(ConfigResourceType))
def test_somebody_reads_every_key_that_can_be_chosen(kind: ConfigResourceType) -> None:
    shown = facts().keys() if kind is ConfigResourceType.BROKER else set()

    unread = set(free_keys(kind)) - read_keys(kind) - shown - INERT

    assert unread == set()


def test_what_a_node_only_shows_cannot_be_chosen_by_clients() -> None:
    shown = [BROKER_CONFIGS[key] for key in facts()]

    assert [key.name for key in shown if key.update is not DynamicUpdateMode.READ_ONLY] == []


def test_every_option_of_a_topic_is_used() -> None:
    logs = Path(inspect.getfile(LogOptions)).parent
    # Logs have options of their own, some of the same name.
    users = [m for m in modules() if not m.path.is_relative_to(logs)]
    used = {name for module in users for _, name in module.attributes}

    assert [option.name for option in fields(TopicOptions) if option.name not in used] == []


def test_every_option_of_a_component_is_used() -> None:
    used = {name for module in modules() for _, name in module.attributes}
    declared = [
        (node.name, statement.target.id)
        for module in modules()
        for node in ast.walk(ast.parse(module.path.read_text()))
        if isinstance(node, ast.ClassDef) and node.name.endswith(("Options", "Limits"))
        for statement in node.body
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)
    ]

    assert [(owner, name) for owner, name in declared if name not in used] == []


def test_every_setting_of_the_file_is_read() -> None:
    readers = [module for module in modules() if module.path.name != "checks.py"]
    read = {pair for module in readers for pair in module.attributes}
    # Sections read their own fields; elsewhere `self` is something else.
    own = {pair for module in readers if module.path.parent.name == "config" for pair in module.attributes}

    def is_read(key: str) -> bool:
        section, name = key.split(".")[-2:]
        return (section, name) in read or ("self", name) in own

    assert [key for key in SETTINGS if not is_read(key)] == []
