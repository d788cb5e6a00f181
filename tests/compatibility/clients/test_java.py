"""Kafka's own client, in Java."""

import subprocess
from collections.abc import Callable, Iterator

import pytest

from benchmarks.peers.maven import PeerUnavailable
from tests.compatibility.clients import java_programs
from tests.compatibility.node import Broker

SECONDS = 240


@pytest.fixture(scope="module")
def transactions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    try:
        yield java_programs.command(tmp_path_factory.mktemp("classes"), "Transactions")
    except PeerUnavailable as reason:
        pytest.skip(f"Kafka's client cannot be run here: {reason}")


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_transactions_end_copy_and_fence(
    transactions: list[str], broker: Broker, fresh: Callable[[str], str], protocol: str
) -> None:
    ended = subprocess.run(
        [*transactions, broker.address, protocol, fresh("java")],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )

    assert ended.returncode == 0, ended.stderr[-2000:]
    numbers = ", ".join(f"{number}" for number in range(40))
    assert ended.stdout.splitlines() == [
        "ends [0-0, 0-1, 0-2, 2-0, 2-1, 2-2]",
        f"copy [{numbers}, end]",
        "fenced",
        "fencing [of the successor]",
    ]
