"""`penstock cluster scrub` against a broker whose files rot."""

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.child import BrokerProcess
from tests.integration.cli.conftest import Run
from tests.support.clusters import until


def shown(run: Run) -> dict[str, Any]:
    (one,) = json.loads(run("cluster", "scrub", "--json").stdout)
    return dict(one)


def partition_of(run: Run, topic: str) -> dict[str, Any]:
    (one,) = [one for one in shown(run)["partitions"] if one["topic"] == topic]
    return dict(one)


def test_it_verifies_now_names_what_is_damaged_and_drops_the_quarantine(
    run: Run, broker: BrokerProcess, topic: str
) -> None:
    run("topic", "create", topic, "--partitions", "1")
    run("produce", topic, stdin=b"\n".join(b"value %d" % number for number in range(100)))
    until(lambda: shown(run)["is_done"] or None, "the first scrub")
    assert run("cluster", "scrub").returncode == 0
    before = shown(run)["started_ms"]
    directory = Path(broker.data_dir, "logs", topic, "0")
    segment = directory / f"{0:020d}.log"
    content = bytearray(segment.read_bytes())
    content[len(content) - 3] ^= 1
    segment.write_bytes(content)

    asked = run("cluster", "scrub", "--now")
    assert "1 broker will begin to verify" in asked.stderr
    until(lambda: partition_of(run, topic)["damaged"] or None, "the damage")
    until(lambda: shown(run)["is_done"] or None, "the second scrub")

    damaged = partition_of(run, topic)
    ((_, end),) = damaged["damaged"]
    assert end == 100
    assert (damaged["found"], damaged["repaired"], damaged["lost"]) == (1, 0, 0)
    assert shown(run)["started_ms"] > before
    told = run("cluster", "scrub", "1")
    assert told.returncode == 1
    assert told.stderr == "penstock: 1 range damaged\n"
    (row,) = [line for line in told.stdout.splitlines() if f"{topic}/0" in line]
    assert f"..{end}" in row

    aside = directory / "quarantine"
    aside.mkdir()
    (aside / f"{0:020d}.cut").write_bytes(b"x" * 1000)
    kept = partition_of(run, topic)
    assert (kept["quarantine_files"], kept["quarantine_bytes"]) == (1, 1000)
    run("cluster", "scrub", "--drop-quarantine")
    until(lambda: not partition_of(run, topic)["quarantine_files"] or None, "the quarantine to be dropped")
    assert list(aside.iterdir()) == []


@pytest.mark.parametrize("damaged", [1, 2], ids=["in the middle", "at the end"])
def test_damaged_records_are_named_by_a_reader_that_goes_on_behind_them(
    run: Run, broker: BrokerProcess, topic: str, damaged: int
) -> None:
    run("topic", "create", topic, "--partitions", "1")
    segment = Path(broker.data_dir, "logs", topic, "0", f"{0:020d}.log")
    ends = list[int]()
    for batch in range(3):
        run("produce", topic, stdin=b"".join(b"value %d\n" % (batch * 100 + number) for number in range(100)))
        ends.append(segment.stat().st_size)
    until(lambda: shown(run)["is_done"] or None, "the first scrub")
    content = bytearray(segment.read_bytes())
    content[ends[damaged] - 3] ^= 1
    segment.write_bytes(content)
    run("cluster", "scrub", "--now")
    until(lambda: partition_of(run, topic)["damaged"] or None, "the damage")
    ((first, end),) = partition_of(run, topic)["damaged"]

    read = run("consume", topic)

    good = [f"value {number}" for number in range(300) if not first <= number < end]
    assert damaged * 100 <= first < end == (damaged + 1) * 100
    assert (read.returncode, read.stdout.splitlines()) == (0, good)
    (named,) = [line for line in read.stderr.splitlines() if "cannot be read" in line]
    assert named.startswith(f"penstock: {topic}/0: offset{'s' if end - first > 1 else ''} {first}")
    assert named.endswith(f"; going on at {end}")
    run("topic", "delete", topic)
    until(lambda: topic not in run("cluster", "scrub").stdout or None, "the topic to be gone")


def test_a_broker_that_there_is_not_is_refused(run: Run) -> None:
    done = run("cluster", "scrub", "7")

    assert (done.returncode, done.stdout) == (1, "")
    assert "there is no broker 7" in done.stderr
