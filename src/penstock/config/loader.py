"""All sources of settings put together into one `Config`.

`penstock.yaml` is read as text with line numbers, rather than as Python values: YAML guesses types
(`no` is false, `1:30` is ninety), and its ready-made objects have forgotten their lines. Composing
nodes and leaving the scalars as text avoids both.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_type_hints

import msgspec
import yaml

from penstock.config.checks import contradictions
from penstock.config.environment import RawSetting, expand, read_environment
from penstock.config.errors import ConfigError, unknown, unusable
from penstock.config.schema import SECTIONS, SETTINGS
from penstock.config.settings import Config, ConfigSection

# A configuration is a page or two; anything larger is the wrong file.
FILE_BYTES_MAX = 1 << 20
DEFAULT_FILE = "penstock.yaml"
DEFAULT_SOURCE = "default"


def read_yaml(
    text: str, name: str, environment: Mapping[str, str], problems: list[str]
) -> Iterator[RawSetting]:
    """What the file gives, with its lines; what is wrong with its form goes to `problems`."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark else ""
        quotes = "; inside { } a ${NAME:default} needs quotes" if "${" in text else ""
        problems.append(f"{name}{line} is not valid YAML: {error.problem or error.context}{quotes}")
        return
    except (yaml.YAMLError, RecursionError) as error:
        problems.append(f"{name} is not valid YAML: {type(error).__name__}")
        return
    if root is not None:
        yield from _Walk(name, environment, problems).section(root, "")


class _Walk:
    """Goes down the nodes as far as the settings do, which bounds it whatever the file refers to."""

    def __init__(self, name: str, environment: Mapping[str, str], problems: list[str]) -> None:
        self._name = name
        self._environment = environment
        self._problems = problems

    def section(self, node: yaml.Node, prefix: str) -> Iterator[RawSetting]:
        if not isinstance(node, yaml.MappingNode):
            if _is_empty(node):
                return  # `storage:` with nothing below it
            where = f"{prefix.rstrip('.')}" or "the file"
            self._problems.append(f"{where} ({self._at(node)}) must hold `key: value` lines")
            return
        seen: set[str] = set()
        for key_node, value in node.value:
            key = prefix + str(key_node.value)
            if key in seen:
                self._problems.append(f"{key} ({self._at(key_node)}) is given twice")
            seen.add(key)
            if key in SECTIONS:
                yield from self.section(value, f"{key}.")
            elif key in SETTINGS:
                yield from self._setting(key, value)
            else:
                # Checked with every other source's names, where the nearest known one is suggested.
                yield RawSetting(key, "", self._at(key_node))

    def _setting(self, key: str, node: yaml.Node) -> Iterator[RawSetting]:
        at = self._at(node)
        if isinstance(node, yaml.SequenceNode) and not any(
            isinstance(element, yaml.SequenceNode) for element in node.value
        ):
            yield RawSetting(key, tuple(self._element(key, element) for element in node.value), at)
        elif _is_empty(node) and SETTINGS[key].default == "":
            yield RawSetting(key, "", at)
        elif _is_empty(node):
            self._problems.append(f"{key} ({at}) has no value: expected {SETTINGS[key].allowed}")
        elif isinstance(node, yaml.ScalarNode):
            yield RawSetting(key, self._text(key, node), at)
        else:
            self._problems.append(
                f"{key} ({at}) is a setting, not a section: expected {SETTINGS[key].allowed}"
            )

    def _element(self, key: str, node: yaml.Node) -> str:
        if isinstance(node, yaml.ScalarNode):
            return self._text(key, node)
        assert isinstance(node, yaml.MappingNode)
        try:
            fields = {str(name.value): self._text(key, value) for name, value in _scalars(node)}
            return SETTINGS[key].compose(fields)
        except ValueError as error:
            self._problems.append(f"{key} ({self._at(node)}): {error}")
            return ""

    def _text(self, key: str, node: yaml.ScalarNode) -> str:
        try:
            return expand(node.value, self._environment)
        except KeyError as missing:
            self._problems.append(
                f"{key} ({self._at(node)}) needs the environment variable {missing.args[0]}"
            )
            return str(SETTINGS[key].default)

    def _at(self, node: yaml.Node) -> str:
        return f"{self._name}:{node.start_mark.line + 1}"


def _scalars(node: yaml.MappingNode) -> Iterator[tuple[yaml.ScalarNode, yaml.ScalarNode]]:
    for name, value in node.value:
        if not isinstance(name, yaml.ScalarNode) or not isinstance(value, yaml.ScalarNode):
            raise ValueError("its parts must be single values")
        yield name, value


def _is_empty(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.style is None and node.value in ("", "~", "null")


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """A usable configuration, and for each key where its value came from."""

    config: Config
    values: Mapping[str, Any]
    origins: Mapping[str, str]


def load(
    file: str | None = None,
    environment: Mapping[str, str] | None = None,
    overrides: Sequence[RawSetting] = (),
) -> LoadedConfig:
    """Read every source; ConfigError says all that is wrong.

    Without `file`, `penstock.yaml` of the working directory is read if it is there.
    """
    problems: list[str] = []
    variables = environment or {}
    given = [
        *_read_file(file, variables, problems),
        *read_environment(variables, problems),
        *overrides,
    ]
    values, origins = effective(given, problems)
    if not problems:
        problems.extend(contradictions(values, origins))
    if problems:
        raise ConfigError(problems)
    return LoadedConfig(_build(Config, "", values), values, origins)


def override(flag: str, assignment: str) -> RawSetting:
    """A `key=value` from the command line."""
    key, equals, text = assignment.partition("=")
    if not equals:
        raise ConfigError([f"{flag} {assignment}: expected key=value, as in {flag} node.id=2"])
    return RawSetting(key.strip(), text.strip(), flag)


def _read_file(file: str | None, environment: Mapping[str, str], problems: list[str]) -> Iterator[RawSetting]:
    path = Path(file or DEFAULT_FILE)
    if file is None and not path.exists():
        return
    try:
        with path.open("rb") as opened:
            content = opened.read(FILE_BYTES_MAX + 1)
        text = content.decode()
    except OSError as error:
        problems.append(f"{path}: {error.strerror or error}")
        return
    except UnicodeDecodeError:
        problems.append(f"{path} is not UTF-8 text")
        return
    if len(content) > FILE_BYTES_MAX:
        problems.append(f"{path} is larger than {FILE_BYTES_MAX} bytes: not a configuration file")
        return
    yield from read_yaml(text, str(path), environment, problems)


def effective(given: Iterable[RawSetting], problems: list[str]) -> tuple[dict[str, Any], dict[str, str]]:
    """Each key's value and where it came from, the last one given winning."""
    values = {key: setting.default for key, setting in SETTINGS.items()}
    origins = dict.fromkeys(SETTINGS, DEFAULT_SOURCE)
    for one in given:
        setting = SETTINGS.get(one.key)
        if setting is None:
            problems.append(unknown("setting", one.key, one.source, list(SETTINGS)))
            continue
        try:
            values[one.key] = setting.read(one.text)
        except ValueError:
            problems.append(unusable(one.key, one.shown, one.source, setting.allowed))
        origins[one.key] = one.source
    return values, origins


def _build(section: type[ConfigSection], prefix: str, values: Mapping[str, Any]) -> Any:
    kinds = get_type_hints(section)
    return section(
        **{
            field.name: values[prefix + field.name]
            if prefix + field.name in values
            else _build(kinds[field.name], f"{prefix}{field.name}.", values)
            for field in msgspec.structs.fields(section)
        }
    )
