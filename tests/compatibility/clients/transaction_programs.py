"""Clients that are built first: franz-go and quixstreams, on one node.

    python -m tests.compatibility.clients.transaction_programs [franz-go] [quixstreams]

Not part of `make test`: they are fetched from their registries (Go's module proxy, PyPI) and compiled.
Exit status: 0 all that ran behaved, 1 one did not, 2 none could be run here.
"""

import json
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import venv
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Consumer, Producer

from tests.compatibility.node import running_node

HERE = Path(__file__).parent
BUILD_SECONDS = 900
RUN_SECONDS = 300
# What `java/Transactions.java` and `franz_go/main.go` print.
EXPECTED = [
    "ends [0-0, 0-1, 0-2, 2-0, 2-1, 2-2]",
    f"copy [{', '.join(str(number) for number in range(40))}, end]",
    "fenced",
    "fencing [of the successor]",
]
SHARED = "shared map[accepted 1:500 accepted 2:1 rejected 1:1]"
SOURCE, SINK = "words", "counts"
RATE = 50
KILLS = 5


class Unavailable(Exception):
    """The program cannot be had here; says why."""


def franz_go(place: Path, address: str) -> str | None:
    """Build and run the program in Go; returns what was wrong."""
    go = shutil.which("go")
    if go is None:
        raise Unavailable("there is no go on the PATH")
    shutil.copytree(HERE / "franz_go", place / "franz")
    for step in (["mod", "tidy"], ["build", "-o", "program", "."]):
        _build([go, *step], place / "franz")
    ended = subprocess.run(
        [str(place / "franz/program"), address, "franz"],
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        check=False,
    )
    lines = ended.stdout.splitlines()
    return None if lines == [*EXPECTED, SHARED] else f"printed {lines} and {ended.stderr[-500:]!r}"


def quixstreams(place: Path, address: str) -> str | None:
    """Count words exactly once while the program is killed; returns what was wrong."""
    venv.create(place / "venv", with_pip=True)
    python = str(place / "venv/bin/python")
    _build([python, "-m", "pip", "install", "-q", "quixstreams"], place)
    command = [python, str(HERE / "quix_counts.py"), address, SOURCE, SINK, str(place / "state")]
    luck = random.Random(1)
    counts: Counter[str] = Counter()
    feeder = Feeder(address)
    try:
        with (place / "quix.log").open("ab") as said:
            for kills in range(KILLS + 1):
                # The last is not killed, and counts all that there is.
                wanted = feeder.finish() if kills == KILLS else counts.total() + luck.randrange(5, 60)
                process = subprocess.Popen(command, stdout=said, stderr=said)
                try:
                    counts = _await_counts(address, wanted, process)
                finally:
                    process.kill()
                    process.wait()
    finally:
        fed = feeder.finish()
    expected = {f"{number % 10}={1 + number // 10}" for number in range(fed)}
    wrong = [f"{times} times {count}" for count, times in counts.items() if times > 1]
    wrong += [f"lost {count}" for count in expected - counts.keys()]
    wrong += [f"never written {count}" for count in counts.keys() - expected]
    return "; ".join(wrong[:10]) or None


class Feeder:
    """Writes words all the time, so that a program is killed while it has something to do."""

    def __init__(self, address: str) -> None:
        self._producer = Producer({"bootstrap.servers": address, "enable.idempotence": True, "log_level": 0})
        self._fed = 0
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._feed)
        self._thread.start()

    def _feed(self) -> None:
        while not self._ends.wait(1 / RATE):
            self._producer.produce(SOURCE, json.dumps(self._fed), key=f"{self._fed % 10}")
            self._fed += 1

    def finish(self) -> int:
        """Stop, and return how many words were written."""
        self._ends.set()
        self._thread.join()
        assert self._producer.flush(RUN_SECONDS) == 0
        return self._fed


def _await_counts(address: str, wanted: int, process: "subprocess.Popen[bytes]") -> Counter[str]:
    deadline = time.monotonic() + RUN_SECONDS
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": f"judge-{process.pid}",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "log_level": 0,
        }
    )
    consumer.subscribe([SINK])
    found: Counter[str] = Counter()
    while found.total() < wanted:
        assert process.poll() is None, f"it ended with {process.returncode}"
        assert time.monotonic() < deadline, f"only {found.total()} of {wanted} counts came"
        found.update(one.value().decode() for one in consumer.consume(100, 0.5) if one.error() is None)
    consumer.close()
    return found


def _build(command: list[str], place: Path) -> None:
    try:
        built = subprocess.run(
            command, cwd=place, capture_output=True, text=True, timeout=BUILD_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{' '.join(command)}: not done after {BUILD_SECONDS} s") from None
    if built.returncode:
        raise Unavailable(f"{' '.join(command)}: {built.stderr.strip().splitlines()[-1:]}")


PROGRAMS: dict[str, Callable[[Path, str], str | None]] = {"franz-go": franz_go, "quixstreams": quixstreams}


def main(names: list[str]) -> int:
    results: list[bool] = []
    for name in names or list(PROGRAMS):
        with tempfile.TemporaryDirectory(prefix="penstock-foreign-") as root:
            settings = ("topics.partitions=1", "groups.offsets_partitions=1")
            with running_node(Path(root), *settings) as node:
                try:
                    wrong = PROGRAMS[name](Path(root), node.address)
                except Unavailable as reason:
                    print(f"{name}: cannot be run here: {reason}")
                    continue
        print(f"{name}: {wrong or 'passed'}")
        results.append(wrong is None)
    return 2 if not results else 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
