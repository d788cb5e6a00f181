import json
import re
import subprocess
from collections.abc import Callable

import pytest

from tests.integration.cli.conftest import columns

Run = Callable[..., subprocess.CompletedProcess[str]]


def test_a_topic_is_created_listed_described_altered_and_deleted(run: Run, topic: str) -> None:
    created = run(
        "topic", "create", topic, "--partitions", "3", "--rf", "1", "--config", "retention.ms=60000"
    )
    listed = run("topic", "list")
    described = run("topic", "describe", topic)
    altered = run("topic", "alter", topic, "--partitions", "4", "--config", "segment.bytes=1048576")
    unset = run("topic", "alter", topic, "--unset", "retention.ms")
    again = json.loads(run("topic", "describe", topic, "--json").stdout)
    deleted = run("topic", "delete", topic)
    left = json.loads(run("topic", "list", "--json").stdout)

    codes = [one.returncode for one in (created, listed, described, altered, unset, deleted)]
    assert codes == [0] * 6
    assert created.stderr == f"created {topic}\n"
    assert columns(listed.stdout)[0] == ["TOPIC", "PARTITIONS", "REPLICATION-FACTOR"]
    assert [topic, "3", "1"] in columns(listed.stdout)
    assert re.match(rf"{topic}: id [\w-]+, 3 partitions, retention.ms=60000\n", described.stdout)
    assert columns(described.stdout)[1:3] == [
        ["PARTITION", "LEADER", "REPLICAS", "IN-SYNC", "START", "END", "RECORDS"],
        ["0", "1", "1", "1", "0", "0", "0"],
    ]
    assert again["configs"] == {"segment.bytes": "1048576"}
    assert again["partitions"][3] == {
        "partition": 3,
        "leader": 1,
        "replicas": [1],
        "in_sync": [1],
        "start_offset": 0,
        "end_offset": 0,
    }
    assert topic not in [one["name"] for one in left]


def test_without_counts_the_broker_decides(run: Run, topic: str) -> None:
    run("topic", "create", topic)

    listed = json.loads(run("topic", "list", "--json").stdout)

    assert {"name": topic, "partitions": 2, "replication_factor": 1, "internal": False} in listed


def test_several_topics_are_deleted_at_once(run: Run, topic: str) -> None:
    run("topic", "create", f"{topic}-a")
    run("topic", "create", f"{topic}-b")

    ended = run("topic", "delete", f"{topic}-a", f"{topic}-b")

    assert (ended.returncode, ended.stderr) == (0, f"deleted {topic}-a\ndeleted {topic}-b\n")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["create", "a b"], r".*a b.*"),
        (["create", "TOPIC", "--rf", "9"], r".*replica.*"),
        (["create", "TOPIC", "--config", "retention.mss=1"], r".*retention\.mss.*"),
        (["create", "TOPIC", "--config", "retention.ms"], r"--config retention.ms: expected key=value"),
        (["describe", "TOPIC"], r"topic TOPIC: unknown topic or partition"),
        (["delete", "TOPIC"], r"topic TOPIC: unknown topic or partition"),
        (["alter", "TOPIC", "--partitions", "3"], r".*TOPIC.*"),
        (["alter", "TOPIC"], r"nothing to change: give --partitions, --config or --unset"),
    ],
    ids=lambda value: "-".join(value)[:40] if isinstance(value, list) else "",
)
def test_what_is_refused_is_one_line(run: Run, topic: str, arguments: list[str], complaint: str) -> None:
    ended = run("topic", *(word.replace("TOPIC", topic) for word in arguments))

    assert (ended.returncode, ended.stdout) == (1, "")
    assert re.fullmatch(f"penstock: {complaint.replace('TOPIC', topic)}\n", ended.stderr)


def test_a_topic_that_exists_is_not_created_again(run: Run, topic: str) -> None:
    run("topic", "create", topic)

    ended = run("topic", "create", topic)

    assert ended.returncode == 1
    assert ended.stderr.count(topic) == 1
    assert "exists" in ended.stderr
