"""What the metrics pipeline and its jobs can be told; by default, a broker on this machine is enough."""

from pathlib import Path
from typing import Annotated, Literal

import msgspec

from penstock.pipeline.metrics.configuration.durations import Duration

Name = Annotated[str, msgspec.Meta(min_length=1)]
Count = Annotated[int, msgspec.Meta(ge=1)]
Rank = Annotated[float, msgspec.Meta(gt=0, lt=100)]


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A part of the file; a key that is not here is an error."""


def _refuse_same(names: dict[str, str]) -> None:
    keys: dict[str, str] = {}
    for key, name in names.items():
        if name in keys:
            raise ValueError(f"{keys[name]} and {key} are both {name!r}; give each its own")
        keys[name] = key


class Topics(Section, frozen=True):
    """Where records come from, and where they go."""

    inbound: Name = "metrics.inbound"
    rollup: Name = "metrics.rollup"
    dead_letter: Name = "metrics.inbound.dlq"

    def __post_init__(self) -> None:
        # A pipeline that reads what it writes never ends: its rollups are malformed measurements.
        _refuse_same({f"topics.{name}": getattr(self, name) for name in self.__struct_fields__})


class Lake(Section, frozen=True):
    """Where the tables are; `location` is `<state_dir>/lake` unless it is set."""

    location: str = ""
    raw: Name = "raw"
    rollup: Name = "rollup"
    file_bytes: Count = 134_217_728

    def __post_init__(self) -> None:
        _refuse_same({"lake.raw": self.raw, "lake.rollup": self.rollup})


class Percentiles(Section, frozen=True):
    """Which percentiles a rollup has, and whether they are exact.

    Exact ones keep every value of a window until it closes; approximate ones keep a sketch, whose
    rank error is at most the window's count divided by `accuracy`.
    """

    ranks: tuple[Rank, ...] = (50.0, 95.0, 99.0)
    method: Literal["exact", "approximate"] = "exact"
    accuracy: Count = 10_000


class Groups(Section, frozen=True):
    """The consumer group under which the broker shows how far the pipeline has read."""

    ingest: Name = "metrics-ingest"


class Backfill(Section, frozen=True):
    """Rows of the raw table sent to a topic again; `start` and `end` are times such as 2026-11-15T12:00Z."""

    topic: str = ""
    start: str = ""
    end: str = ""
    records_per_second: Annotated[int, msgspec.Meta(ge=0)] = 0


class Compact(Section, frozen=True):
    """Which tables are compacted, and which of their old files may go."""

    tables: tuple[Literal["raw", "rollup"], ...] = ("raw", "rollup")
    file_bytes: Count = 134_217_728
    vacuum: bool = True
    retention_hours: Annotated[int, msgspec.Meta(ge=1)] = 168


class Audit(Section, frozen=True):
    """Whether the topic itself is read to tell what became of offsets that no table has."""

    read_topic: bool = True
    fail: bool = False
    ranges_max: Count = 20


class MetricsConfig(Section, frozen=True):
    """The whole file."""

    bootstrap: Name = "127.0.0.1:9092"
    kafka: dict[str, str] = msgspec.field(default_factory=dict)
    state_dir: Name = "penstock-pipeline"
    checkpoint: str = ""
    topics: Topics = Topics()
    lake: Lake = Lake()
    lateness: Duration = Duration.parse("10m")
    ahead: Duration = Duration.parse("2d")
    windows: tuple[Duration, ...] = (Duration.parse("1m"), Duration.parse("5m"))
    percentiles: Percentiles = Percentiles()
    dedupe: bool = True
    delivery: Literal["at-least-once", "exactly-once"] = "at-least-once"
    trigger: Duration = Duration.parse("5s")
    max_offsets_per_trigger: Count = 1_000_000
    max_bytes_per_trigger: Count = 134_217_728
    starting_offsets: Name = "earliest"
    fail_on_data_loss: bool = True
    groups: Groups = Groups()
    backfill: Backfill = Backfill()
    compact: Compact = Compact()
    audit: Audit = Audit()

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
