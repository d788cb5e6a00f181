"""`penstock queue` against a broker in a process, also one that is killed."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.cli.conftest import columns
from tests.support.nodes import NodeProcess

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def queue(run: Run, topic: str) -> str:
    """A topic with one partition and two records."""
    run("topic", "create", topic, "--partitions", "1")
    run("produce", topic, stdin=b"one\ntwo\n")
    return topic


def test_records_are_received_released_and_acknowledged(run: Run, queue: str) -> None:
    received = json.loads(run("queue", "receive", queue, "--group", queue, "--json").stdout)
    assert [(each["value"], each["attempt"]) for each in received] == [("one", 1), ("two", 1)]
    receipts = [each["receipt"] for each in received]

    released = run("queue", "nack", receipts[0], "--group", queue, "--delay-ms", "0", "--reason", "busy")
    renewed = run("queue", "renew", receipts[1], "--group", queue, "--lease-ms", "60000")
    peeked = columns(run("queue", "peek", queue, "--group", queue).stdout)
    again = json.loads(run("queue", "receive", queue, "--group", queue, "--wait-ms", "5000", "--json").stdout)
    acknowledged = run(
        "queue", "ack", "-", "--group", queue, stdin=f"{again[0]['receipt']}\n{receipts[1]}\n".encode()
    )

    assert (released.returncode, released.stderr) == (0, "released 1 record\n")
    assert (renewed.returncode, renewed.stderr) == (0, "renewed 1 lease\n")
    assert peeked[1:] == [
        ["0", "available", "1", "-", "one", "busy"],
        ["1", "leased", "1", "cli", "two", "-"],
    ]
    assert [(each["value"], each["attempt"]) for each in again] == [("one", 2)]
    assert (acknowledged.returncode, acknowledged.stderr) == (0, "acknowledged 2 records\n")
    (numbers,) = json.loads(run("queue", "describe", queue, "--json").stdout)
    assert (numbers["finished_below"], numbers["leased"], numbers["ready"]) == (2, 0, 0)


def test_queues_are_listed_paused_resumed_reset_and_forgotten(run: Run, queue: str) -> None:
    run("queue", "receive", queue, "--group", queue)

    assert run("queue", "pause", queue, "--group", queue).returncode == 0
    paused = [row for row in columns(run("queue", "list").stdout) if row[0] == queue]
    assert [(row[1], row[-1]) for row in paused] == [(queue, "yes")]
    assert run("queue", "resume", queue, "--group", queue).returncode == 0
    assert run("queue", "reset", queue, "--group", queue, "--to", "1").returncode == 0
    received = json.loads(run("queue", "receive", queue, "--group", queue, "--json").stdout)
    assert [each["value"] for each in received] == ["two"]
    assert run("queue", "reject", received[0]["receipt"], "--group", queue).returncode == 0
    assert run("queue", "forget", queue, "--group", queue).returncode == 0
    assert not [row for row in columns(run("queue", "list").stdout) if row[0] == queue]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("receive", "nowhere", "--group", "g"), "there is no topic nowhere"),
        (("ack", "nonsense", "--group", "g"), "this is not a receipt of a delivered message"),
        (("ack", "-", "--group", "g"), "no receipt was given"),
        (("pause", "nowhere", "--group", "g"), "there is no topic nowhere"),
        (("reset", "t", "--group", "g", "--to", "there"), "--to there: earliest, latest, or an offset"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(
    run: Run, arguments: tuple[str, ...], complaint: str
) -> None:
    failed = run("queue", *arguments)

    assert failed.returncode != 0
    assert complaint in failed.stderr
    assert len(failed.stderr.strip().splitlines()) == 1


def test_a_lease_outlives_kill_9_and_then_ends(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    node = NodeProcess(tmp_path / "data", "groups.offsets_partitions=1", "topics.partitions=1").start()
    try:
        monkeypatch.setenv("PENSTOCK_BOOTSTRAP", node.kafka)
        run("topic", "create", "jobs", "--partitions", "1")
        run("produce", "jobs", stdin=b"one\ntwo\n")
        lease = ("--group", "g", "--lease-ms", "3000", "--json")
        (first,) = json.loads(run("queue", "receive", "jobs", "-n", "1", *lease).stdout)

        node.kill()
        node.start()
        monkeypatch.setenv("PENSTOCK_BOOTSTRAP", node.kafka)

        # The lease is counted anew: only the other record can be had at once.
        (second,) = json.loads(run("queue", "receive", "jobs", *lease).stdout)
        assert (second["value"], second["attempt"]) == ("two", 1)
        assert run("queue", "ack", second["receipt"], "--group", "g").returncode == 0
        (again,) = json.loads(run("queue", "receive", "jobs", "--wait-ms", "30000", *lease).stdout)
        assert (again["value"], again["attempt"]) == ("one", 2)
        late = run("queue", "ack", first["receipt"], "--group", "g")
        assert "not leased to this consumer" in late.stderr
        assert run("queue", "ack", again["receipt"], "--group", "g").returncode == 0
        (numbers,) = json.loads(run("queue", "describe", "g", "--json").stdout)
        assert numbers["finished_below"] == 2
    finally:
        node.stop()


def test_dead_letters_are_listed_and_moved_back(run: Run, queue: str) -> None:
    received = json.loads(run("queue", "receive", queue, "--group", queue, "--json").stdout)
    receipts = [each["receipt"] for each in received]
    run("queue", "reject", *receipts, "--group", queue, "--reason", "broken")
    letters: list[dict[str, str]] = []
    for _ in range(100):
        letters = json.loads(run("queue", "dlq", queue, "--json").stdout)
        if len(letters) == 2:
            break
    assert [(each["origin"], each["reason"], each["value"]) for each in letters] == [
        (f"{queue}/0/0", "broken", "one"),
        (f"{queue}/0/1", "broken", "two"),
    ]

    tried = run("queue", "redrive", queue, "--dry-run")
    chosen = run("queue", "redrive", queue, "--id", letters[1]["id"])
    left = columns(run("queue", "dlq", queue).stdout)
    moved = run("queue", "redrive", queue, "--rate", "100")

    assert (tried.returncode, tried.stderr) == (0, "would move 2 dead letters\n")
    assert (chosen.returncode, chosen.stderr) == (0, "moved 1 dead letter\n")
    assert [row[0] for row in left[1:]] == [letters[0]["id"]]
    assert (moved.returncode, moved.stderr) == (0, "moved 1 dead letter\n")
    again = json.loads(run("queue", "receive", queue, "--group", queue, "--wait-ms", "5000", "--json").stdout)
    assert [(each["value"], each["attempt"]) for each in again] == [("two", 1), ("one", 1)]
    wrong = run("queue", "redrive", queue, "--id", "elsewhere/0/0")
    assert (wrong.returncode, "partition/offset" in wrong.stderr) == (1, True)
