"""What the well-behaved clients felt, and whether that is good enough."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks.attacks.well_behaved import AckedRecord, ReadRecord, acked_records, read_records

P99_MS_MAX = 50.0
WAIT_MS_MAX = 500.0
KEPT_MB_MAX = 50.0
# Besides those of logs, which give them back where they are short; connections must not keep theirs.
KEPT_DESCRIPTORS_MAX = 200


@dataclass(frozen=True, slots=True)
class Latencies:
    """How long records took that were meant to be sent in a window."""

    count: int = 0
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    max_ms: float = 0.0

    @classmethod
    def of(cls, waits_ns: Sequence[int]) -> "Latencies":
        if not waits_ns:
            return cls()
        ordered = sorted(waits_ns)
        last = len(ordered) - 1
        return cls(len(ordered), *(round(ordered[int(part * last)] / 1e6, 1) for part in (0.5, 0.99, 1.0)))


@dataclass(frozen=True, slots=True)
class Window:
    """Half-open, in the nanoseconds of the monotonic clock."""

    start_ns: int
    end_ns: int

    def has(self, at_ns: int) -> bool:
        return self.start_ns <= at_ns < self.end_ns

    def acked(self, records: Sequence[AckedRecord]) -> Latencies:
        """Of the producer: from when a record was to be sent until it was acknowledged."""
        mine = [one for one in records if one.is_acked and self.has(one.intended_ns)]
        return Latencies.of([one.acked_ns - one.intended_ns for one in mine])

    def read(self, records: Sequence[ReadRecord]) -> Latencies:
        """Of the consumer: from when a record was to be sent until it was received for the first time."""
        first: dict[int, int] = {}
        for one in records:
            if self.has(one.intended_ns):
                first.setdefault(one.number, one.received_ns - one.intended_ns)
        return Latencies.of(list(first.values()))


@dataclass(frozen=True, slots=True)
class Account:
    """What became of the records of the well-behaved producer."""

    acked: int
    # Acknowledged, and not in the log.
    lost: int
    # In the log more than once.
    doubled: int
    # Acknowledged, and never seen by the consumer group.
    unseen: int
    # Given up by the producer with an error, or not acknowledged when it ended: nothing is promised of them.
    failed: int
    # Whether the log was read to its end: otherwise nothing is known of what is lost.
    is_log_read: bool = True

    @classmethod
    def of(cls, acked_path: Path, group_path: Path, log_path: Path, *, is_log_read: bool) -> "Account":
        sent = acked_records(acked_path)
        acked = {one.number for one in sent if one.is_acked}
        in_log = [one.number for one in read_records(log_path)]
        seen = {one.number for one in read_records(group_path)}
        return cls(
            acked=len(acked),
            lost=len(acked - set(in_log)),
            doubled=len(in_log) - len(set(in_log)),
            unseen=len(acked - seen),
            failed=sum(not one.is_acked for one in sent),
            is_log_read=is_log_read,
        )

    def misses(self) -> list[str]:
        """What should not have become of them, each in a word or two."""
        found = {
            "log not read": not self.is_log_read,
            "lost": self.is_log_read and self.lost,
            "doubled": self.doubled,
            "unseen": self.unseen,
            "failed": self.failed,
            "none acknowledged": not self.acked,
        }
        return [name for name, is_missed in found.items() if is_missed]


@dataclass(slots=True)
class AttackResult:
    """One row of the table."""

    name: str
    nodes: int
    outage_seconds: float = 0.0
    baseline: Latencies = field(default_factory=Latencies)
    produce: Latencies = field(default_factory=Latencies)
    consume: Latencies = field(default_factory=Latencies)
    recovery: Latencies = field(default_factory=Latencies)
    before_mb: float = 0.0
    during_mb: float = 0.0
    after_mb: float = 0.0
    descriptors_before: int = 0
    descriptors_after: int = 0
    # Seconds from the start after `kill -9` until all nodes were ready; none if they were not.
    restart_seconds: float | None = None
    nodes_ended: int = 0
    account: Account = field(default_factory=lambda: Account(0, 0, 0, 0, 0))
    attackers: dict[str, int] = field(default_factory=dict)
    # What the nodes said meanwhile, by event.
    events: dict[str, int] = field(default_factory=dict)

    def misses(self) -> list[str]:
        """The goals that were missed, each in a word or two."""
        goals = {
            "p99": self.produce.p99_ms < P99_MS_MAX + 1e3 * self.outage_seconds and self.produce.count > 0,
            "max": self.produce.max_ms < WAIT_MS_MAX + 1e3 * self.outage_seconds,
            "memory": self.after_mb - self.before_mb < KEPT_MB_MAX,
            "descriptors": self.descriptors_after - self.descriptors_before < KEPT_DESCRIPTORS_MAX,
            "node ended": self.nodes_ended == 0,
            "restart": self.restart_seconds is not None,
        }
        return [name for name, is_met in goals.items() if not is_met] + self.account.misses()

    def row(self) -> str:
        restart = "never" if self.restart_seconds is None else f"{self.restart_seconds:.1f}"
        waits = (self.produce.p50_ms, self.produce.p99_ms, self.produce.max_ms, self.consume.max_ms)
        memory = (self.before_mb, self.during_mb, self.after_mb)
        kept = (self.account.acked, self.account.lost, restart)
        columns = [
            f"{self.name:24} {self.baseline.p99_ms:8.1f} ",
            "".join(f"{wait:9.1f}" for wait in waits),
            "".join(f"{megabytes:7.0f}" for megabytes in memory),
            f"{self.descriptors_before:6}{self.descriptors_after:6}",
            "".join(f"{one:>7}" for one in kept),
            f" {', '.join(self.misses()) or 'ok'}",
        ]
        return "|".join(columns)

    def as_json(self) -> dict[str, object]:
        return {**asdict(self), "misses": self.misses()}


HEADING = "|".join(
    [
        f"{'attack':24} {'base p99':>8} ",
        "".join(f"{name:>9}" for name in ("p50", "p99", "max", "read max")),
        "".join(f"{name:>7}" for name in ("MB", "during", "after")),
        f"{'fds':>6}{'after':>6}",
        "".join(f"{name:>7}" for name in ("acked", "lost", "start")),
        " misses",
    ]
)


def noted_events(paths: Sequence[Path]) -> dict[str, int]:
    """How often the nodes wrote each warning or error."""
    found: dict[str, int] = {}
    for path in paths:
        for line in path.read_text(errors="replace").splitlines() if path.exists() else ():
            try:
                event = json.loads(line)
            except ValueError:
                found[line[:80]] = found.get(line[:80], 0) + 1
                continue
            if event.get("level") in ("warning", "error", "critical"):
                name = str(event.get("event"))
                found[name] = found.get(name, 0) + 1
    return dict(sorted(found.items(), key=lambda one: -one[1])[:20])
