"""Settings from environment variables, and `${NAME:default}` in values of the file (`$${` writes `${`)."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from penstock.config.errors import unknown
from penstock.config.schema import SETTINGS, Text

PREFIX = "PENSTOCK_"
# Shorter names for what containers set most; every setting has its full name as well.
SHORT_NAMES = {
    "PENSTOCK_DATA_DIR": "node.data_dir",
    "PENSTOCK_KAFKA_ADDR": "listen.kafka",
    "PENSTOCK_HTTP_ADDR": "listen.http",
    "PENSTOCK_GRPC_ADDR": "listen.grpc",
    "PENSTOCK_METRICS_ADDR": "listen.metrics",
    "PENSTOCK_PEER_ADDR": "listen.peer",
    "PENSTOCK_LOG_LEVEL": "logging.level",
    "PENSTOCK_LOG_FORMAT": "logging.format",
}
VARIABLES = SHORT_NAMES | {setting.variable: key for key, setting in SETTINGS.items()}
# Kubernetes describes every service to every pod in variables; one called `penstock` or
# `penstock-metrics` makes names that look like ours.
_SERVICE_LINK = re.compile(r"_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT|PORT_\d+_(TCP|UDP|SCTP)(_\w+)?)$")
_SECTION_PREFIXES = tuple({f"{PREFIX}{key.partition('.')[0].upper()}_" for key in SETTINGS})
_REFERENCE = re.compile(r"\$(\$\{)|\$\{([A-Za-z_][A-Za-z0-9_]*)(?::([^}]*))?\}")


@dataclass(frozen=True, slots=True)
class RawSetting:
    """A key, its text, and where it stood: `penstock.yaml:12`, `PENSTOCK_NODE_ID`, `--set`."""

    key: str
    text: Text
    source: str

    @property
    def shown(self) -> str:
        return self.text if isinstance(self.text, str) else "[" + ", ".join(self.text) + "]"


def read_environment(environment: Mapping[str, str], problems: list[str]) -> Iterator[RawSetting]:
    """What the variables give; a misspelt one is a problem, an unrelated one is not."""
    given: dict[str, RawSetting] = {}
    for name in sorted(environment):
        if not name.startswith(PREFIX):
            continue
        key = VARIABLES.get(name)
        if key is None:
            if _is_misspelt(name):
                problems.append(unknown("setting", name, "environment", list(VARIABLES)))
            continue
        other = given.get(key)
        if other is not None and other.text != environment[name]:
            problems.append(f"{key}: {other.source} and {name} are both set, to different values")
        given[key] = RawSetting(key, environment[name], name)
    yield from given.values()


def expand(text: str, environment: Mapping[str, str]) -> str:
    """Replace each reference; KeyError names a variable that is not set and has no default.

    As in a shell's `${NAME:-default}`, a variable set to nothing counts as not set.
    """

    def replace(match: re.Match[str]) -> str:
        escaped, name, default = match.groups()
        if escaped:
            return "${"
        if value := environment.get(name):
            return value
        if default is None:
            raise KeyError(name)
        return str(default)

    return _REFERENCE.sub(replace, text)


def _is_misspelt(name: str) -> bool:
    if _SERVICE_LINK.search(name):
        return False
    return name.startswith(_SECTION_PREFIXES) or bool(get_close_matches(name, VARIABLES, n=1, cutoff=0.9))
