"""The configuration file: whatever stands in it, problems are words and never exceptions."""

import random

from fuzz.harness import Target
from penstock.config import SETTINGS, ConfigError
from penstock.config.loader import effective
from penstock.config.yaml_file import read_yaml


def seed(rng: random.Random) -> bytes:
    """A valid file with some settings at their defaults, in block or flow form."""
    sections: dict[str, dict[str, list[str]]] = {}
    for key in rng.sample(sorted(SETTINGS), rng.randrange(1, 6)):
        section, _, path = key.partition(".")
        inner, _, name = path.rpartition(".")
        setting = SETTINGS[key]
        members = sections.setdefault(section, {}).setdefault(inner, [])
        members.append(f"{name}: {setting.show(setting.default)}")
    lines = []
    for section, parts in sections.items():
        if list(parts) == [""] and rng.random() < 0.5:
            lines.append(f"{section}: {{{', '.join(parts[''])}}}")
            continue
        lines.append(f"{section}:")
        for inner, members in parts.items():
            if inner:  # storage.fsync
                lines += [f"  {inner}:", *(f"    {member}" for member in members)]
            else:
                lines += [f"  {member}" for member in members]
    return "\n".join([*lines, "# ${NAME:default}", ""]).encode()


def run(content: bytes) -> None:
    """As `load` does, from the file's text on."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return
    problems: list[str] = []
    effective(list(read_yaml(text, "penstock.yaml", {"NAME": "x"}, problems)), problems)
    if problems:
        raise ConfigError(problems)


# PyYAML builds a token, an event and a node of Python objects for every few characters.
TARGETS = (Target("config-file", seed, run, (ConfigError,), allocation_factor=4_000),)
