import json
import subprocess
from collections.abc import Callable

import pytest

from tests.integration.cli.conftest import columns

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def group(run: Run, topic: str) -> str:
    """A group that has read 30 of the 100 records in a topic of the same name."""
    run("topic", "create", topic, "--partitions", "1")
    run("produce", topic, stdin=b"".join(b"%d\n" % number for number in range(100)))
    read = run("consume", topic, "--group", topic, "--count", "30")
    assert read.returncode == 0
    return topic


def test_groups_are_listed(run: Run, group: str) -> None:
    as_table = run("group", "list")
    as_json = run("group", "list", "--json")

    assert [group, "empty", "classic"] in columns(as_table.stdout)
    assert {"group": group, "state": "empty", "type": "classic"} in json.loads(as_json.stdout)


def test_lag_is_shown_in_records_and_in_seconds(run: Run, group: str) -> None:
    as_table = run("group", "describe", group)
    found = json.loads(run("group", "describe", group, "--json").stdout)

    headline, header, row = columns(as_table.stdout)
    assert headline == [f"{group}: empty, 0 members"]
    assert header == ["TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "LAG-SECONDS", "MEMBER"]
    assert row == [group, "0", "30", "100", "70", row[5], "-"]
    assert float(row[5]) >= 0
    (partition,) = found["partitions"]
    assert (found["state"], found["members"]) == ("empty", [])
    assert {key: partition[key] for key in ("topic", "partition", "committed", "end", "lag", "member")} == {
        "topic": group,
        "partition": 0,
        "committed": 30,
        "end": 100,
        "lag": 70,
        "member": None,
    }
    assert 0 < partition["lag_seconds"] < 300


def test_a_consumer_group_is_shown_with_its_epochs_and_what_its_members_subscribe_to(
    run: Run, topic: str
) -> None:
    from confluent_kafka import Consumer

    run("topic", "create", topic, "--partitions", "3")
    settings = {"bootstrap.servers": _bootstrap(), "group.id": topic, "group.protocol": "consumer"}
    member = Consumer({**settings, "client.id": "reader", "group.instance.id": "one"})
    member.subscribe([f"^{topic}$"])
    for _ in range(600):
        member.poll(0.05)
        if len(member.assignment()) == 3:
            break

    as_table = columns(run("group", "describe", topic).stdout)
    found = json.loads(run("group", "describe", topic, "--json").stdout)
    member.close()

    epoch = found["epoch"]
    assert as_table[1] == [f"consumer protocol: epoch {epoch}, target of epoch {epoch}, assignor uniform"]
    assert as_table[2] == ["MEMBER", "CLIENT", "INSTANCE", "PROTOCOL", "EPOCH", "PARTITIONS", "SUBSCRIBED-TO"]
    assert as_table[3][1:] == ["reader", "one", "consumer", str(epoch), "3", f"/(^{topic}$)/"]
    assert (found["type"], found["members"][0]["target"]) == (
        "consumer",
        [f"{topic}-{number}" for number in range(3)],
    )


def test_the_age_is_that_of_the_first_record_that_was_not_read(run: Run, topic: str) -> None:
    """Measured where timestamps are hours apart, so that no other record could be meant."""
    from penstock.client import Endpoint, ProducerOptions, TopicProducer
    from penstock.runtime.loop import MachineClock

    hour_ms = 3_600_000
    now = MachineClock().wall()
    run("topic", "create", topic, "--partitions", "1")
    sender = TopicProducer(Endpoint(_bootstrap()), topic, ProducerOptions())
    for hours in (5, 4, 3, 2):
        sender.send(b"x", timestamp_ms=now - hours * hour_ms)
    sender.finish()

    run("consume", topic, "--group", topic, "--count", "2")
    found = json.loads(run("group", "describe", topic, "--json").stdout)

    assert found["partitions"][0]["lag"] == 2
    assert 3 * 3_600 <= found["partitions"][0]["lag_seconds"] < 3 * 3_600 + 300


def test_a_group_without_lag_is_not_behind(run: Run, group: str) -> None:
    run("consume", group, "--group", group)

    (partition,) = json.loads(run("group", "describe", group, "--json").stdout)["partitions"]

    assert (partition["lag"], partition["lag_seconds"]) == (0, 0.0)


@pytest.mark.parametrize(
    ("to", "committed"), [("beginning", 0), ("end", 100), ("42", 42), ("1h", 0), ("2100-01-01T00:00", 100)]
)
def test_a_group_is_moved(run: Run, group: str, to: str, committed: int) -> None:
    ended = run("group", "reset", group, "--to", to)

    (partition,) = json.loads(run("group", "describe", group, "--json").stdout)["partitions"]
    assert (ended.returncode, columns(ended.stdout)[1:]) == (0, [[group, "0", str(committed)]])
    assert partition["committed"] == committed


def test_a_dry_run_moves_nothing(run: Run, group: str) -> None:
    ended = run("group", "reset", group, "--to", "beginning", "--dry-run", "--json")

    (partition,) = json.loads(run("group", "describe", group, "--json").stdout)["partitions"]
    assert json.loads(ended.stdout) == [{"topic": group, "partition": 0, "offset": 0}]
    assert partition["committed"] == 30


def test_a_group_that_does_not_exist_yet_can_be_given_a_position(run: Run, group: str) -> None:
    run("group", "reset", f"{group}-new", "--topic", group, "--to", "98")

    assert run("consume", group, "--group", f"{group}-new").stdout == "98\n99\n"


def test_a_deleted_group_is_gone(run: Run, group: str) -> None:
    deleted = run("group", "delete", group)
    gone = run("group", "describe", group)
    again = run("group", "delete", group)

    assert (deleted.returncode, deleted.stderr) == (0, f"deleted {group}\n")
    assert (gone.returncode, gone.stderr) == (1, f"penstock: group {group} does not exist\n")
    assert again.returncode == 1


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["reset", "GROUP", "--to", "noon"], "--to 'noon' is not beginning, end"),
        (["reset", "no-group", "--to", "end"], "group no-group has no committed offsets; name a topic"),
        (["reset", "GROUP", "--to", "end", "--topic", "no-topic"], "topic no-topic does not exist"),
    ],
    ids=["time", "group", "topic"],
)
def test_what_is_refused_is_one_line(run: Run, group: str, arguments: list[str], complaint: str) -> None:
    ended = run("group", *(word.replace("GROUP", group) for word in arguments))

    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith(f"penstock: {complaint}")
    assert ended.stderr.count("\n") == 1


def _bootstrap() -> str:
    import os

    return os.environ["PENSTOCK_BOOTSTRAP"]
