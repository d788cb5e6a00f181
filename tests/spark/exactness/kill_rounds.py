"""The metrics pipeline while driver, executors and broker are killed, judged by count and by content.

    python -m tests.spark.exactness.kill_rounds --records 2000000 --rounds 10

A generator sends measurements, some late, some repeated, some malformed, and keeps its own account.
In each round the broker, one executor and the driver are killed with SIGKILL at random moments, in
random order. Then everything is read to its end, and the tables (by delta-rs and by Spark) and the
topics are compared with the account.
"""

import argparse
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from penstock.client import Endpoint, Topics
from penstock.pipeline.demo.exactness import Check, Places, check_all
from penstock.pipeline.generator import Account, MetricStream, Plan, generate, send_closing
from penstock.pipeline.generator.points import open_points
from penstock.pipeline.generator.sending import Limits
from penstock.pipeline.metrics import PIPELINES
from tests.spark.exactness.processes import PipelineProcess, kill
from tests.support.nodes import NodeProcess

PARTITIONS = 4
SERIES = 72
LATE, DUPLICATES, MALFORMED = 0.05, 0.01, 0.01
SETTINGS = ("trigger=1s", "max_offsets_per_trigger=60000", "lateness=30m")
PATIENCE_SECONDS = 300.0
AT_MOST_SECONDS = 6.0


@dataclass
class Outcome:
    """What the rounds showed."""

    kills: dict[str, int] = field(default_factory=dict)
    batches: int = 0
    checks: list[Check] = field(default_factory=list)

    @property
    def is_exact(self) -> bool:
        return bool(self.checks) and all(check.is_exact for check in self.checks)


class Rounds:
    """One broker, one pipeline, one generator, and somebody who kills."""

    def __init__(self, directory: Path, records: int, rate: float, master: str, luck: random.Random) -> None:
        self._luck = luck
        self._directory = directory
        self.node = NodeProcess(directory / "node").start()
        self.endpoint = Endpoint(self.node.kafka)
        state = directory / "state"
        self.config = PIPELINES["metrics"].configure(
            None,
            {"bootstrap": self.node.kafka, "state_dir": str(state), **dict(s.split("=") for s in SETTINGS)},
        )
        Topics(self.endpoint).create(self.config.topics.inbound, PARTITIONS, -1, {})
        self.pipeline = PipelineProcess(self.node.kafka, state, master, SETTINGS)
        self.points = directory / "points.parquet"
        self.outcome = Outcome()
        self._stream: MetricStream | None = None
        self._failure: Exception | None = None
        self._all_sent = threading.Event()
        self._all_read = threading.Event()
        self._generator = threading.Thread(target=self._generate, args=(records, rate), daemon=True)

    def _generate(self, records: int, rate: float) -> None:
        start_ms = time.time_ns() // 1_000_000 - records // SERIES * 1_000
        plan = Plan(records, start_ms, SERIES, 1_000, LATE, DUPLICATES, MALFORMED)
        try:
            with open_points(self.points) as kept:
                self._stream = MetricStream(plan, kept.add)
                generate(self.endpoint, self.config.topics.inbound, self._stream, Limits(rate=rate))
                self._all_sent.set()
                self._all_read.wait()
                send_closing(self.endpoint, self.config.topics.inbound, self._stream)
        except Exception as error:
            self._failure = error
            self._all_sent.set()

    def run(self, rounds: int) -> Outcome:
        """All rounds, then everything to its end, then the checks."""
        self._generator.start()
        self.pipeline.start()
        for number in range(1, rounds + 1):
            victims: list[tuple[str, Callable[[], None]]] = [
                ("broker", self._kill_broker),
                ("executor", self._kill_executor),
                ("driver", self._kill_driver),
            ]
            self._luck.shuffle(victims)
            for name, strike in victims:
                self._await_batches(self._luck.randint(1, 3))
                time.sleep(self._luck.uniform(0, AT_MOST_SECONDS))
                strike()
                self.outcome.kills[name] = self.outcome.kills.get(name, 0) + 1
            _say(
                f"round {number}: {', '.join(name for name, _ in victims)}; {self.pipeline.batches()} batches"
            )
        self._finish()
        return self.outcome

    def _kill_broker(self) -> None:
        self.node.kill()
        self.node.start()

    def _kill_executor(self) -> None:
        self._until("an executor is there", lambda: bool(self.pipeline.executors()))
        kill(self._luck.choice(self.pipeline.executors()))

    def _kill_driver(self) -> None:
        self.pipeline.kill_driver()
        self.pipeline.start()

    def _await_batches(self, count: int) -> None:
        before = self.pipeline.batches()
        self._until(f"{count} more batches", lambda: self.pipeline.batches() >= before + count)

    def _until(self, what: str, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not is_so():
            if self._failure is not None:
                raise AssertionError(f"the generator failed: {self._failure}")
            if self.pipeline.has_ended or time.monotonic() > deadline:
                raise AssertionError(f"waited for {what}: {self.pipeline.last_words()}")
            time.sleep(0.1)

    def _finish(self) -> None:
        """Let the generator end, and read the rest; then the closing record, which must be last."""
        self._all_sent.wait()
        self.pipeline.end()
        _say("the rest: everything that was sent, then the closing record")
        self._drain()
        self._all_read.set()
        self._generator.join(PATIENCE_SECONDS)
        if self._failure is not None:
            raise AssertionError(f"the generator failed: {self._failure}")
        self._drain()
        self.outcome.batches = self.pipeline.batches()
        assert self._stream is not None
        config = self.config
        places = Places(
            self.endpoint,
            config.raw_table,
            config.rollup_table,
            config.topics.rollup,
            config.topics.dead_letter,
            tuple(map(int, config.windows)),
        )
        self.outcome.checks += check_all(places, self._stream.account, self.points)
        self.outcome.checks.append(seen_by_spark(config.raw_table, self._stream.account, self._directory))

    def _drain(self) -> None:
        self.pipeline.start("--once")
        code = self.pipeline.wait(PATIENCE_SECONDS * 4)
        assert code == 0, self.pipeline.last_words()

    def close(self) -> None:
        self.pipeline.end()
        self.node.stop()


def seen_by_spark(table: str, account: Account, scratch: Path) -> Check:
    """The raw table once more, by Spark: rows, and rows that are not repeats."""
    script = (
        "import sys; from pathlib import Path; from pyspark.sql import functions as F\n"
        "from penstock.pipeline.running.session import SessionOptions, open_session\n"
        "point, origin = F.struct('series', 'client', 'timestamp'), F.struct('partition', 'offset')\n"
        "with open_session(SessionOptions('check', Path(sys.argv[2]), 'local[2]')) as spark:\n"
        "    rows = spark.read.format('penstock-lake').load(sys.argv[1])\n"
        "    print(*rows.agg(F.count('*'), F.countDistinct(point), F.countDistinct(origin)).first())"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script, table, str(scratch)], capture_output=True, text=True, check=True
    )
    rows, points, origins = map(int, ran.stdout.split())
    return Check("raw, by Spark", account.points, rows, rows == points == origins == account.points)


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def main() -> int:
    """Run the rounds and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--rate", type=float, default=8_000)
    parser.add_argument("--master", default="local-cluster[2,1,1024]")
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="penstock-rounds-") as directory:
        rounds = Rounds(
            Path(directory), chosen.records, chosen.rate, chosen.master, random.Random(chosen.seed)
        )
        try:
            outcome = rounds.run(chosen.rounds)
        finally:
            rounds.close()
    _say(f"kills: {outcome.kills}, batches: {outcome.batches}")
    for check in outcome.checks:
        verdict = "exact" if check.is_exact else "NOT EXACT"
        _say(
            f"{check.name:14} expected {check.expected:>9,} found {check.found:>9,}"
            f" repeats {check.repeats:>6,}  {verdict}"
        )
    return 0 if outcome.is_exact else 1


if __name__ == "__main__":
    sys.exit(main())
