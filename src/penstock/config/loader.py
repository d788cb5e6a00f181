"""All sources of settings put together into one `Config`."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_type_hints

import msgspec

from penstock.config.checks import DEFAULT_SOURCE, contradictions
from penstock.config.environment import RawSetting, read_environment
from penstock.config.errors import ConfigError, unknown, unusable
from penstock.config.schema import SETTINGS
from penstock.config.settings import Config, ConfigSection

# A configuration is a page or two; anything larger is the wrong file.
FILE_BYTES_MAX = 1 << 20
DEFAULT_FILE = "penstock.yaml"


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
    return assemble(given, problems)


def assemble(given: Iterable[RawSetting], known: Sequence[str] = ()) -> LoadedConfig:
    """The configuration that these settings make; ConfigError says all that is wrong, `known` first."""
    problems = list(known)
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
    # Most nodes are started with flags alone, and clients wait for the start.
    from penstock.config.yaml_file import read_yaml

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
