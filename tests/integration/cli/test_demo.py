import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.cli.child import throw_away_broker
from penstock.cli.demo import DemoFailed, DemoResult, RecordDigests, read_all, send_all
from penstock.client import Endpoint, ProducerOptions, TopicAdmin, TopicProducer

COMMAND = [sys.executable, "-m", "penstock.cli", "demo", "--broker-only"]
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Temporary files go where the test can count them."""
    (tmp_path / "temporary").mkdir()
    return os.environ | {"TMPDIR": str(tmp_path / "temporary"), "COLUMNS": "200"}


def demo(
    *arguments: str, environment: dict[str, str], cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        env=environment,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_demo_streams_through_a_broker_and_leaves_nothing_behind(
    environment: dict[str, str], tmp_path: Path
) -> None:
    ended = demo("--messages", "20000", "--once", environment=environment, cwd=tmp_path)

    assert ended.returncode == 0, ended.stderr
    assert re.search(
        r"messages sent .* 20,000 \(\d\.\d MB\) to 6 partitions, each acknowledged", ended.stdout
    )
    assert "20,000 by a consumer group, all exactly as sent" in ended.stdout
    assert re.search(r"send rate .* [\d,]+ messages/s, [\d.]+ MB/s", ended.stdout)
    assert re.search(r"publish latency .* p50 [\d.]+ ms, p90 [\d.]+ ms, p99 [\d.]+ ms", ended.stdout)
    assert re.search(r"lag halfway .* [1-9][\d,]* messages, the oldest [\d,.]+ s old", ended.stdout)
    assert re.search(r"lag at the end .* 0 messages, 0 s", ended.stdout)
    assert ended.stderr.startswith("streaming 20000 measurements to 127.0.0.1:")
    assert list((tmp_path / "temporary").iterdir()) == []
    assert [path.name for path in tmp_path.iterdir()] == ["temporary"]


def test_without_a_terminal_the_smallest_demo_ends_by_itself(environment: dict[str, str]) -> None:
    ended = demo("--messages", "1", environment=environment)

    assert ended.returncode == 0, ended.stderr
    assert "1 by a consumer group, all exactly as sent" in ended.stdout


def test_on_a_terminal_the_broker_stays_up_until_it_is_interrupted(
    environment: dict[str, str], tmp_path: Path
) -> None:
    terminal, inner = os.openpty()
    with subprocess.Popen(
        [*COMMAND, "--messages", "1000"],
        env=environment,
        stdin=inner,
        stdout=inner,
        stderr=subprocess.DEVNULL,
    ) as running:
        os.close(inner)
        shown = b""
        while b"Ctrl-C stops it" not in shown:
            assert select.select([terminal], [], [], 60)[0], shown
            shown += os.read(terminal, 65_536)
        match = re.search(rb"stays up at ([\d.]+:\d+)", shown)
        assert match is not None
        topics = TopicAdmin(Endpoint(match[1].decode())).list()

        running.send_signal(signal.SIGINT)
        code = running.wait(60)
    os.close(terminal)

    assert code == 0
    assert "metrics" in [one.name for one in topics]
    assert list((tmp_path / "temporary").iterdir()) == []


@pytest.mark.parametrize(
    ("number", "code", "words"),
    [(signal.SIGINT, 130, "penstock: interrupted\n"), (signal.SIGTERM, 143, "")],
)
def test_a_demo_that_is_stopped_cleans_up(
    number: signal.Signals, code: int, words: str, environment: dict[str, str], tmp_path: Path
) -> None:
    with subprocess.Popen(
        [*COMMAND, "--messages", "5000000"], env=environment, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stderr is not None
        assert running.stderr.readline().startswith("streaming 5000000 measurements")

        running.send_signal(number)
        _, errors = running.communicate(timeout=60)

    assert (running.returncode, errors) == (code, words)
    assert list((tmp_path / "temporary").iterdir()) == []


def test_a_record_that_was_not_sent_by_the_demo_fails_it() -> None:
    with throw_away_broker() as child:
        endpoint = Endpoint(child.bootstrap)
        TopicAdmin(endpoint).create("metrics", 2, 1, {})
        outcome = DemoResult(2)
        sent = send_all(endpoint, "metrics", 100, outcome, _ignore)
        stranger = TopicProducer(endpoint, "metrics", ProducerOptions())
        stranger.send(b"not ours", b"key", partition=1)
        stranger.finish()

        found = read_all(endpoint, "metrics", "judge", outcome, _ignore)

    with pytest.raises(DemoFailed, match=r"partition 1: \d+ records came back instead of \d+"):
        sent.check(found)
    assert isinstance(found, RecordDigests)


def test_the_lag_counts_partitions_of_which_nothing_was_read_yet() -> None:
    with throw_away_broker() as child:
        endpoint = Endpoint(child.bootstrap)
        TopicAdmin(endpoint).create("metrics", 6, 1, {})
        outcome = DemoResult(6)
        send_all(endpoint, "metrics", 25_000, outcome, _ignore)
        steps: list[int] = []

        read_all(endpoint, "metrics", "half", outcome, steps.append)

    sums = [sum(steps[: index + 1]) for index in range(len(steps))]
    halfway = next(total for total in sums if total * 2 >= 25_000)
    assert outcome.lag_halfway is not None
    assert outcome.lag_halfway.records == 25_000 - halfway


@pytest.mark.parametrize("messages", ["0", "-1", "many"])
def test_a_senseless_number_of_messages_is_wrong_use(messages: str, environment: dict[str, str]) -> None:
    assert demo("--messages", messages, environment=environment).returncode == 2


def _ignore(step: int) -> None:
    """A step that nobody sees."""
