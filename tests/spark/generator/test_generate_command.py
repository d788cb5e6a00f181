"""`penstock generate` against a real broker."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from penstock.client import ConsumerOptions, Endpoint, TopicConsumer
from penstock.spark.generator import content_hash, point_hash, read_points
from penstock.spark.generator.records import bytes_hash

TROUBLE = ("--late", "0.05", "--duplicates", "0.02", "--malformed", "0.03")


def command(servers: str, topic: str, *arguments: str) -> list[str]:
    head = [
        sys.executable,
        "-m",
        "penstock.cli",
        "generate",
        "--bootstrap",
        servers,
        "--topic",
        topic,
        "--json",
    ]
    return [*head, *arguments]


def values_in(servers: str, topic: str) -> list[bytes | None]:
    with TopicConsumer(Endpoint(servers), topic, ConsumerOptions()) as reader:
        return [read.value for batch in reader.batches() for read in batch]


def check_account(account: dict[str, Any], values: list[bytes | None], points: Path) -> None:
    """What is in the topic is what the account says, by count and by content."""
    kept = set(points.read_bytes().splitlines())
    valid = [value for value in values if value in kept]
    broken = [value for value in values if value not in kept]
    assert len(values) == account["records"]
    assert len(set(valid)) == account["points"] == len(kept)
    assert len(valid) - len(set(valid)) == account["duplicates"]
    assert len(broken) == account["malformed"]
    assert content_hash(bytes_hash(value) for value in broken) == account["malformed_hash"]
    hashes = (
        point_hash(p.name, p.value, dict(p.labels), p.timestamp_ms, p.client) for p in read_points(points)
    )
    assert content_hash(hashes) == account["points_hash"]


def test_what_is_in_the_topic_is_what_the_account_says(servers: str, topic: str, tmp_path: Path) -> None:
    points = tmp_path / "points.ndjson"

    ran = subprocess.run(
        command(servers, topic, "--count", "20000", *TROUBLE, "--close", "--points", str(points)),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )

    account = json.loads(ran.stdout)
    assert account["records"] == 20_001
    assert account["closing_ms"] == account["last_ms"] + 86_400_000
    check_account(account, values_in(servers, topic), points)


def test_a_generator_that_is_told_to_stop_accounts_for_what_it_sent(
    servers: str, topic: str, tmp_path: Path
) -> None:
    points = tmp_path / "points.ndjson"
    endless = command(servers, topic, "--seconds", "120", "--rate", "2000", *TROUBLE, "--points", str(points))

    with subprocess.Popen(endless, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        assert "records to" in running.stderr.readline()
        running.send_signal(signal.SIGTERM)
        out, _ = running.communicate(timeout=60)

    account = json.loads(out)
    assert running.returncode == 0
    assert account["stopped_early"] is True
    check_account(account, values_in(servers, topic), points)


def test_a_generator_without_a_broker_says_so_in_one_line() -> None:
    ran = subprocess.run(
        command("127.0.0.1:1", "t", "--count", "1"), capture_output=True, text=True, check=False, timeout=60
    )

    assert ran.returncode == 1
    assert ran.stderr == (
        "penstock: no broker at 127.0.0.1:1: connection refused "
        "(`penstock up` starts one, --bootstrap names another)\n"
    )


def test_a_plan_that_cannot_be_is_refused_in_one_line(servers: str) -> None:
    ran = subprocess.run(
        command(servers, "t", "--late", "0.9", "--malformed", "0.9"),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert ran.returncode == 1
    assert ran.stderr.startswith("penstock: late, duplicates and malformed are 1.8 in all")
