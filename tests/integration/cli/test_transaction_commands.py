"""`penstock transaction` against a broker."""

import json
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.cli.child import BrokerProcess
from penstock.client.transactions import TransactionAdmin
from tests.integration.cli.conftest import columns

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def producer(run: Run, broker: BrokerProcess, topic: str) -> Iterator[Any]:
    """A producer with a transaction open in partition 0 of a topic, whose name is its transactional id."""
    from confluent_kafka import Producer

    run("topic", "create", topic, "--partitions", "1")
    opened = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic, "log_level": 0})
    opened.init_transactions(30)
    opened.begin_transaction()
    opened.produce(topic, b"open")
    opened.flush(30)
    yield opened
    opened.purge()


@pytest.mark.usefixtures("producer")
def test_an_open_transaction_is_listed_described_and_aborted(run: Run, topic: str) -> None:
    listed = run("transaction", "list", "--state", "Ongoing", "--json")
    described = json.loads(run("transaction", "describe", topic, "--json").stdout)
    table = run("transaction", "describe", topic)
    aborted = run("transaction", "abort", topic)

    (row,) = [row for row in json.loads(listed.stdout) if row["transactional_id"] == topic]
    assert (row["state"], row["coordinator"]) == ("Ongoing", 1)
    assert (described["state"], described["partitions"]) == ("Ongoing", [[topic, 0]])
    assert described["producer_id"] == row["producer_id"]
    assert described["duration_ms"] >= 0
    assert columns(table.stdout)[0][0] == "TRANSACTIONAL-ID"
    assert columns(table.stdout)[-1] == [topic, "0"]
    assert aborted.returncode == 0, aborted.stderr
    after = json.loads(run("transaction", "describe", topic, "--json").stdout)
    assert (after["state"], after["partitions"], after["started_ms"]) == ("Empty", [], None)
    assert run("transaction", "list", "--state", "Ongoing", "--producer-id", "999999").stdout.count("\n") == 1


@pytest.mark.usefixtures("producer")
def test_what_a_coordinator_knows_of_does_not_hang(run: Run, topic: str) -> None:
    none = run("transaction", "find-hanging", "--topic", topic, "--max-transaction-minutes", "0", "--json")

    assert none.stderr == ""
    assert (none.returncode, json.loads(none.stdout)) == (0, [])


@pytest.mark.usefixtures("producer")
def test_a_transaction_that_no_coordinator_knows_is_found_and_aborted(
    run: Run, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Brokers verify transactions, so that none hangs: here the coordinators' state is as if it were lost.
    monkeypatch.setattr(TransactionAdmin, "listed", lambda *_, **__: [])

    found = run("transaction", "find-hanging", "--topic", topic, "--max-transaction-minutes", "0", "--json")
    young = run("transaction", "find-hanging", "--topic", topic)

    assert (found.returncode, young.returncode) == (1, 0)
    (row,) = json.loads(found.stdout)
    assert (row["topic"], row["partition"], row["start_offset"]) == (topic, 0, 0)
    place = ("--topic", topic, "--partition", "0", "--start-offset", "0")
    ended = run("transaction", "abort", *place)
    assert ended.returncode == 0, ended.stderr
    again = run("transaction", "find-hanging", "--topic", topic, "--max-transaction-minutes", "0")
    assert again.returncode == 0
    gone = run("transaction", "abort", *place)
    assert (gone.returncode, gone.stderr) == (
        1,
        f"penstock: no transaction is open at offset 0 of {topic}/0\n",
    )


def test_one_way_to_name_a_transaction_is_needed(run: Run) -> None:
    for words in ((), ("x", "--topic", "t")):
        refused = run("transaction", "abort", *words)
        assert refused.returncode == 1
        assert "name a transactional id, or --topic" in refused.stderr
    unknown = run("transaction", "describe", "nobody")
    assert unknown.returncode == 1
    assert unknown.stderr == "penstock: transactional id nobody: transactional id not found\n"
