"""The settings of the metrics pipeline and its jobs, and how a YAML file gives them.

File, environment and command line are put together. Every scalar of the file is read as text, and the
type of its key decides what the text means. `${NAME:default}` is replaced from the environment. A key
that is not known is an error which names it, with the nearest one that is.

Left out: changing a running pipeline. What a checkpoint depends on cannot change under it at all.
"""

import os
import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, TypeVar, get_args, get_origin, get_type_hints

import msgspec
import yaml

from penstock.config.environment import expand
from penstock.spark.errors import SparkOptionError

UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_PART = re.compile(r"(\d+)(ms|s|m|h|d)")
Name = Annotated[str, msgspec.Meta(min_length=1)]
Count = Annotated[int, msgspec.Meta(ge=1)]
Rank = Annotated[float, msgspec.Meta(gt=0, lt=100)]
FILE_BYTES_MAX = 1 << 20
Shape = TypeVar("Shape", bound=msgspec.Struct)
_TRUTH = {"yes": "true", "on": "true", "no": "false", "off": "false"}
_ENUM = re.compile(r"^Invalid enum value (?P<value>.*)$")
_AT = re.compile(r"^(?P<what>.*?) - at `\$\.?(?P<path>[^`]*)`$", re.DOTALL)


class Duration(int):
    """A length of time in milliseconds.

    >>> Duration.parse("1h30m")
    Duration('1h30m')
    >>> Duration.parse("90s").seconds
    90
    """

    @classmethod
    def parse(cls, text: str) -> "Duration":
        """Read `10m`; ValueError for what is no length of time."""
        parts = _PART.findall(text)
        if not parts or "".join(number + unit for number, unit in parts) != text:
            raise ValueError(f"{text!r} is not a length of time, as 30s, 10m or 1h30m are")
        return cls(sum(int(number) * UNITS_MS[unit] for number, unit in parts))

    @property
    def seconds(self) -> int:
        return self // 1_000

    def __str__(self) -> str:
        """The shortest way to write it.

        >>> str(Duration(300_000))
        '5m'
        """
        left, parts = int(self), []
        for unit in ("d", "h", "m", "s", "ms"):
            number, left = divmod(left, UNITS_MS[unit])
            if number:
                parts.append(f"{number}{unit}")
        return "".join(parts) or "0s"

    def __repr__(self) -> str:
        return f"Duration({str(self)!r})"


class MetricsSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A part of the file; a key that is not here is an error."""


def _refuse_same(names: dict[str, str]) -> None:
    keys: dict[str, str] = {}
    for key, name in names.items():
        if name in keys:
            raise ValueError(f"{keys[name]} and {key} are both {name!r}; give each its own")
        keys[name] = key


class TopicsSection(MetricsSection, frozen=True):
    """Where records come from, and where they go."""

    inbound: Name = "metrics.inbound"
    rollup: Name = "metrics.rollup"
    dead_letter: Name = "metrics.inbound.dlq"

    def __post_init__(self) -> None:
        # A pipeline that reads what it writes never ends: its rollups are malformed measurements.
        _refuse_same({f"topics.{name}": getattr(self, name) for name in self.__struct_fields__})


class LakeSection(MetricsSection, frozen=True):
    """Where the tables are; `location` is `<state_dir>/lake` unless it is set."""

    location: str = ""
    raw: Name = "raw"
    rollup: Name = "rollup"
    file_bytes: Count = 134_217_728

    def __post_init__(self) -> None:
        _refuse_same({"lake.raw": self.raw, "lake.rollup": self.rollup})


class PercentilesSection(MetricsSection, frozen=True):
    """Which percentiles a rollup has, and whether they are exact.

    Exact ones keep every value of a window until it closes; approximate ones keep a sketch, whose
    rank error is at most the window's count divided by `accuracy`.
    """

    ranks: tuple[Rank, ...] = (50.0, 95.0, 99.0)
    method: Literal["exact", "approximate"] = "exact"
    accuracy: Count = 10_000


class GroupsSection(MetricsSection, frozen=True):
    """The consumer group under which the broker shows how far the pipeline has read."""

    ingest: Name = "metrics-ingest"


class BackfillSection(MetricsSection, frozen=True):
    """Rows of the raw table sent to a topic again; `start` and `end` are times such as 2026-11-15T12:00Z."""

    topic: str = ""
    start: str = ""
    end: str = ""
    records_per_second: Annotated[int, msgspec.Meta(ge=0)] = 0


class CompactSection(MetricsSection, frozen=True):
    """Which tables are compacted, and which of their old files may go."""

    tables: tuple[Literal["raw", "rollup"], ...] = ("raw", "rollup")
    file_bytes: Count = 134_217_728
    vacuum: bool = True
    retention_hours: Annotated[int, msgspec.Meta(ge=1)] = 168


class AuditSection(MetricsSection, frozen=True):
    """Whether the topic itself is read to tell what became of offsets that no table has."""

    read_topic: bool = True
    fail: bool = False
    ranges_max: Count = 20


class MetricsConfig(MetricsSection, frozen=True):
    """The whole file."""

    bootstrap: Name = "127.0.0.1:9092"
    kafka: dict[str, str] = msgspec.field(default_factory=dict)
    state_dir: Name = "penstock-pipeline"
    checkpoint: str = ""
    topics: TopicsSection = TopicsSection()
    lake: LakeSection = LakeSection()
    lateness: Duration = Duration.parse("10m")
    ahead: Duration = Duration.parse("2d")
    windows: tuple[Duration, ...] = (Duration.parse("1m"), Duration.parse("5m"))
    percentiles: PercentilesSection = PercentilesSection()
    dedupe: bool = True
    delivery: Literal["best", "at-least-once", "exactly-once"] = "best"
    trigger: Duration = Duration.parse("5s")
    max_offsets_per_trigger: Count = 1_000_000
    max_bytes_per_trigger: Count = 134_217_728
    starting_offsets: Name = "earliest"
    fail_on_data_loss: bool = True
    groups: GroupsSection = GroupsSection()
    backfill: BackfillSection = BackfillSection()
    compact: CompactSection = CompactSection()
    audit: AuditSection = AuditSection()

    def __post_init__(self) -> None:
        if not self.windows or min(self.windows) < 1_000:
            raise ValueError("windows must be a list of lengths of a second or more")
        if len(set(self.windows)) != len(self.windows):
            raise ValueError("windows has a length twice")
        if any(window % 1_000 for window in self.windows):
            raise ValueError("windows must be whole seconds")
        if not self.percentiles.ranks:
            raise ValueError("percentiles.ranks must not be empty")
        if len(set(self.percentiles.ranks)) != len(self.percentiles.ranks):
            raise ValueError("percentiles.ranks has a rank twice")
        if self.lateness < 1:
            # A malformed record stands a millisecond after the watermark, and must not move it.
            raise ValueError("lateness must be a millisecond or more")

    @property
    def checkpoints(self) -> Path:
        return Path(self.checkpoint) if self.checkpoint else Path(self.state_dir) / "checkpoints"

    def checkpoint_of(self, query: str) -> str:
        """Where a query's checkpoint is; a local one by its full path, since tasks work elsewhere."""
        if "://" in self.checkpoint:
            return f"{self.checkpoint.rstrip('/')}/{query}"
        return str(self.checkpoints.absolute() / query)

    @property
    def tables(self) -> str:
        return (self.lake.location or str(Path(self.state_dir) / "lake")).rstrip("/")

    @property
    def raw_table(self) -> str:
        return f"{self.tables}/{self.lake.raw}"

    @property
    def rollup_table(self) -> str:
        return f"{self.tables}/{self.lake.rollup}"

    @property
    def kafka_options(self) -> dict[str, str]:
        """The broker and how to reach it, as the source's and the sink's options."""
        return {"kafka.bootstrap.servers": self.bootstrap} | {
            f"kafka.{name.removeprefix('kafka.')}": value for name, value in self.kafka.items()
        }


def load(
    shape: type[Shape],
    path: Path | None = None,
    overrides: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Shape:
    """The file's values with the overrides above them; `SparkOptionError` names the key that is wrong."""
    variables = os.environ if environment is None else environment
    values = _read(path, variables) if path else {}
    _refuse_unknown(shape, values, "", str(path))
    for key, text in (overrides or {}).items():
        _set(shape, values, key, text)
    try:
        return msgspec.convert(_with_truths(shape, values), shape, strict=False, dec_hook=_decode)
    except msgspec.ValidationError as error:
        _refuse(shape, str(error), f" ({path})" if path else "")


def _read(path: Path, environment: Mapping[str, str]) -> dict[str, Any]:
    try:
        content = path.read_bytes()
        text = content.decode()
    except OSError as error:
        raise SparkOptionError("config", f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise SparkOptionError("config", f"{path} is not UTF-8 text") from None
    if len(content) > FILE_BYTES_MAX:
        raise SparkOptionError(
            "config", f"{path} is larger than {FILE_BYTES_MAX} bytes: not a configuration file"
        )
    try:
        # The base loader leaves every scalar as text: what it means is for the setting's type to say.
        values = yaml.load(text, Loader=yaml.BaseLoader)
    except (yaml.YAMLError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        why = getattr(error, "problem", None) or type(error).__name__
        raise SparkOptionError("config", f"{path}{line} is not valid YAML: {why}") from None
    if values in (None, ""):
        return {}
    if not isinstance(values, dict):
        raise SparkOptionError("config", f"{path} must hold `key: value` lines")
    expanded = _expanded(values, "", environment)
    assert isinstance(expanded, dict)
    return expanded


def _expanded(value: Any, key: str, environment: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        below = {
            name: _expanded(part, f"{key}.{name}".lstrip("."), environment) for name, part in value.items()
        }
        # `lake:` with nothing below it says nothing.
        return {name: part for name, part in below.items() if part != ""}
    if isinstance(value, list):
        return [_expanded(part, key, environment) for part in value]
    try:
        return expand(value, environment)
    except KeyError as missing:
        raise SparkOptionError(key, f"needs the environment variable {missing.args[0]}") from None


def _sections(shape: Any) -> dict[str, Any]:
    return get_type_hints(shape, include_extras=True)


def _is_section(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _refuse_unknown(shape: Any, values: Any, prefix: str, source: str) -> None:
    if not isinstance(values, dict):
        return
    kinds = _sections(shape)
    for name, value in values.items():
        if name not in kinds:
            raise SparkOptionError(f"{prefix}{name}", f"unknown key ({source}){_near(name, kinds)}")
        if _is_section(kinds[name]):
            _refuse_unknown(kinds[name], value, f"{prefix}{name}.", source)


def _with_truths(shape: Any, values: Any) -> Any:
    """The same values with `yes` and `off` in a form that a truth value is converted from."""
    if shape is bool:
        return _TRUTH.get(str(values).lower(), values)
    if not isinstance(values, dict) or not _is_section(shape):
        return values
    kinds = _sections(shape)
    return {name: _with_truths(kinds[name], value) for name, value in values.items()}


def _set(shape: Any, values: dict[str, Any], key: str, text: str) -> None:
    """Put one `topics.inbound=...` where the file would have had it."""
    *sections, last = _parts(shape, key)
    for name in sections:
        below = values.setdefault(name, {})
        if not isinstance(below, dict):
            raise SparkOptionError(key, f"{name} is not a section")
        values = below
        shape = _sections(shape)[name]
    kind = _sections(shape)[last] if _is_section(shape) else str
    values[last] = [part.strip() for part in text.split(",") if part.strip()] if _is_list(kind) else text


def _parts(shape: Any, key: str) -> Iterator[str]:
    """The key's steps down; below a free mapping such as `kafka` everything left is one name."""
    rest = key
    while True:
        kinds = _sections(shape)
        name, dot, rest = rest.partition(".")
        if name not in kinds:
            raise SparkOptionError(key, f"unknown key{_near(name, kinds)}")
        has_more = _is_section(kinds[name]) or get_origin(kinds[name]) is dict
        if has_more != bool(dot):
            raise SparkOptionError(
                key, f"{name} {'has keys below it' if has_more else 'has no keys below it'}"
            )
        yield name
        if not dot:
            return
        if not _is_section(kinds[name]):
            yield rest
            return
        shape = kinds[name]


def _is_list(kind: Any) -> bool:
    return get_origin(kind) is tuple or any(get_origin(part) is tuple for part in get_args(kind))


def _near(name: str, known: Mapping[str, Any]) -> str:
    near = get_close_matches(name, known, n=1, cutoff=0.6)
    return f"; did you mean {near[0]}?" if near else f"; known are {', '.join(known)}"


def _decode(kind: type, value: Any) -> Any:
    if kind is Duration:
        return Duration.parse(str(value))
    # msgspec's way to say that a type is not supported.
    raise NotImplementedError(kind)


def _refuse(shape: Any, message: str, source: str) -> NoReturn:
    found = _AT.match(message)
    if found is None:
        raise SparkOptionError("config", message.replace("`", "") + source) from None
    what = found["what"].replace("`", "")
    if wrong := _ENUM.match(what):
        what = f"{wrong['value']} is none of {', '.join(_choices(shape, found['path']))}"
    raise SparkOptionError(found["path"], what[:1].lower() + what[1:] + source) from None


def _choices(shape: Any, path: str) -> tuple[str, ...]:
    """The words that a key can have; a list's are those of each of its parts."""
    for name in path.partition("[")[0].split("."):
        shape = _sections(shape)[name]
    return get_args(get_args(shape)[0]) if _is_list(shape) else get_args(shape)
