"""Settings from `penstock.yaml`.

The file is read as text with line numbers, rather than as Python values: YAML guesses types (`no` is
false, `1:30` is ninety), and its ready-made objects have forgotten their lines. Composing nodes and
leaving the scalars as text avoids both.
"""

from collections.abc import Iterator, Mapping

import yaml

from penstock.config.environment import RawSetting, expand
from penstock.config.schema import SECTIONS, SETTINGS


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
