"""The metrics pipeline while driver, executors and broker are killed, judged by count and by content.

    python -m tests.spark.exactness.kill_rounds --records 2000000 --rounds 10 [--brokers 3]
                                                [--quick] [--delivery at-least-once]

A generator sends measurements, some late, some repeated, some malformed, and keeps its own account.
In each round the broker, one executor and the driver are killed with SIGKILL at random moments, in
random order; of several brokers one, whoever it is. Then everything is read to its end, and the
tables (by delta-rs and by Spark) and the topics (committed records) are compared with the account:
everything must be there, and nothing twice. With at-least-once delivery, topics hold repeats, and the
rounds say so.

The records are dealt out over the kills, so that each of them strikes while something is on its way. Every
other kill strikes when records have just come to the output topics, before their batch has ended: that is
where a batch that is tried again would leave repeats. Time in the records passes fast enough for windows
to close between the kills, and not so fast that a partition without a leader makes them late.
"""

import argparse
import itertools
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from penstock.client import ClientError
from penstock.spark.demo import ExactnessCheck
from penstock.spark.errors import PipelineError
from penstock.spark.generator import GeneratorLimits
from tests.spark.exactness.processes import comes_true, kill
from tests.spark.exactness.trial import QUICK, SERIES, Trial
from tests.support.clusters import ClusterProcesses
from tests.support.nodes import NodeProcess

SETTINGS = {"trigger": "1s", "max_offsets_per_trigger": "60000", "lateness": "30m"}
LATENESS_MS = 30 * 60_000
# The time in the records of one kill: a partition may stay behind by what is sent for three of them.
KILL_MS = LATENESS_MS // 4
PATIENCE_SECONDS = 300.0
AT_MOST_SECONDS = 6.0
VICTIMS = 3


@dataclass
class Outcome:
    """What the rounds showed."""

    kills: dict[str, int] = field(default_factory=dict)
    restarts: int = 0
    batches: int = 0
    checks: list[ExactnessCheck] = field(default_factory=list)

    @property
    def is_exact(self) -> bool:
        return bool(self.checks) and all(check.is_exact for check in self.checks)


class Allowance:
    """How many records may have been sent by now; whoever sends more has to wait.

    Waiting must not be made up for by haste, so the rate is kept here as well.
    """

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._changed = threading.Condition()
        self._allowed = self._sent = 0
        self._is_over = False

    def allow(self, records: int) -> None:
        with self._changed:
            self._allowed += records
            self._changed.notify_all()

    def end(self) -> None:
        """Nobody has to wait any more."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def spend(self, records: int) -> None:
        with self._changed:
            self._sent += records
            self._changed.wait_for(lambda: self._is_over, records / self._rate)
            self._changed.wait_for(lambda: self._is_over or self._sent < self._allowed)


class Brokers:
    """One node, or several that are one cluster."""

    def __init__(self, directory: Path, count: int) -> None:
        self._cluster = ClusterProcesses(directory, count=count) if count > 1 else None
        self._nodes = (
            list(self._cluster.nodes.values()) if self._cluster else [NodeProcess(directory / "node")]
        )
        try:
            for node in self._nodes:
                node.launch()
            for node in self._nodes:
                node.await_ready()
        except BaseException:
            self.stop()
            raise

    @property
    def bootstrap(self) -> str:
        return self._cluster.bootstrap if self._cluster else self._nodes[0].kafka

    def kill_one(self, luck: random.Random) -> None:
        """Kill a node, and start it again."""
        node = luck.choice(self._nodes)
        node.kill()
        node.start()

    def stop(self) -> None:
        for node in self._nodes:
            if node.is_running:
                node.kill()
        if self._cluster is not None:
            self._cluster.close()


class Rounds:
    """Brokers, one pipeline, one generator, and somebody who kills."""

    def __init__(
        self,
        directory: Path,
        master: str,
        rate: float,
        luck: random.Random,
        arguments: Sequence[str] = (),
        *,
        brokers: int = 1,
        delivery: str = "exactly-once",
    ) -> None:
        self._luck = luck
        self._rate = rate
        self.brokers = Brokers(directory, brokers)
        try:
            settings = SETTINGS | {"delivery": delivery}
            self.trial = Trial(self.brokers.bootstrap, directory, master, settings, arguments)
        except BaseException:
            self.brokers.stop()
            raise
        self.pipeline = self.trial.pipeline
        self.outcome = Outcome()
        self._allowance = Allowance(rate)
        self._failure: Exception | None = None
        self._strikes_at_write = itertools.cycle((True, False))
        self._generator: threading.Thread | None = None

    def __enter__(self) -> "Rounds":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._allowance.end()
        try:
            self.pipeline.end()
        finally:
            self.brokers.stop()

    def run(self, records: int, rounds: int) -> Outcome:
        """All rounds, then everything to its end, then the checks."""
        portion = -(-records // (rounds * VICTIMS))
        self._generator = threading.Thread(target=self._generate, args=(records, portion), daemon=True)
        self._generator.start()
        self.pipeline.start()
        for number in range(1, rounds + 1):
            names = self._round(portion)
            _say(f"round {number}: {', '.join(names)}; {self.pipeline.batches()} batches")
        self._finish()
        return self.outcome

    def _generate(self, records: int, portion: int) -> None:
        limits = GeneratorLimits(rate=self._rate)
        try:
            self.trial.send(records, limits, self._allowance.spend, KILL_MS * SERIES // portion)
        except (ClientError, PipelineError) as error:
            self._failure = error

    def _round(self, portion: int) -> list[str]:
        victims: list[tuple[str, Callable[[], None]]] = [
            ("broker", self._kill_broker),
            ("executor", self._kill_executor),
            ("driver", self._kill_driver),
        ]
        self._luck.shuffle(victims)
        for name, strike in victims:
            self._send(portion // 2)
            if next(self._strikes_at_write):
                self._send_and_see_it_written(portion // 2)
            else:
                self._allowance.allow(portion // 2)
                # Not to wait for anything: the moment is to be a random one.
                time.sleep(self._luck.uniform(0, AT_MOST_SECONDS))
            strike()
            self.outcome.kills[name] = self.outcome.kills.get(name, 0) + 1
        return [name for name, _ in victims]

    def _send(self, records: int) -> None:
        """Let some more be sent, and see the pipeline begin with it."""
        before = self.pipeline.batches()
        self._allowance.allow(records)
        self._until("another batch", lambda: self.pipeline.batches() > before)

    def _send_and_see_it_written(self, records: int) -> None:
        """Let some more be sent, and see the first of it in an output topic."""
        before = self.trial.written()
        self._allowance.allow(records)
        self._until("a record in an output topic", lambda: self.trial.written() > before)

    def _kill_broker(self) -> None:
        self.brokers.kill_one(self._luck)

    def _kill_executor(self) -> None:
        executors: list[int] = []

        def is_one_there() -> bool:
            executors[:] = self.pipeline.executors()
            return bool(executors)

        self._until("an executor", is_one_there)
        kill(self._luck.choice(executors))

    def _kill_driver(self) -> None:
        self.pipeline.kill_driver()
        self.pipeline.start()

    def _until(self, what: str, is_so: Callable[[], bool]) -> None:
        def is_settled() -> bool:
            return is_so() or self._failure is not None or self.pipeline.has_ended

        comes_true(is_settled, PATIENCE_SECONDS)
        while self.pipeline.was_too_slow and not is_so():
            self.pipeline.start()
            self.outcome.restarts += 1
            comes_true(is_settled, PATIENCE_SECONDS)
        self._check_generator()
        why = "ended" if self.pipeline.has_ended else f"ran for {PATIENCE_SECONDS:.0f} s"
        assert is_so(), (
            f"the pipeline {why} before {what} was seen, after the kills {self.outcome.kills}:\n"
            f"{self.pipeline.last_words()}"
        )

    def _check_generator(self) -> None:
        if self._failure is not None:
            raise AssertionError(f"the generator failed: {self._failure}")

    def _finish(self) -> None:
        """Let the generator end, and judge what the pipeline made of it."""
        assert self._generator is not None
        generator = self._generator
        self._allowance.end()
        self._until("the last record sent", lambda: not generator.is_alive())
        self._check_generator()
        self.pipeline.end()
        _say("the rest: everything that was sent, then the closing record")
        self.outcome.checks += [*self.trial.judge(), self.trial.judge_by_spark()]
        self.outcome.batches = self.pipeline.batches()


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
    parser.add_argument("--brokers", type=int, default=1)
    parser.add_argument("--delivery", default="exactly-once")
    parser.add_argument("--quick", action="store_true", help="for small trials: less shuffling and compiling")
    chosen = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="penstock-rounds-") as directory,
        Rounds(
            Path(directory),
            chosen.master,
            chosen.rate,
            random.Random(chosen.seed),
            QUICK if chosen.quick else (),
            brokers=chosen.brokers,
            delivery=chosen.delivery,
        ) as rounds,
    ):
        outcome = rounds.run(chosen.records, chosen.rounds)
    _say(f"kills: {outcome.kills}, restarts: {outcome.restarts}, batches: {outcome.batches}")
    for check in outcome.checks:
        verdict = "exact" if check.is_exact else "NOT EXACT"
        _say(
            f"{check.name:14} expected {check.expected:>9,} found {check.found:>9,}"
            f" repeats {check.repeats:>6,}  {verdict}"
        )
    return 0 if outcome.is_exact else 1


if __name__ == "__main__":
    sys.exit(main())
