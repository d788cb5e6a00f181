"""The requests of the guide, which are those people know from other queues, as curl sends them."""

import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.testing import Broker, broker

GUIDE = Path(__file__).parents[3] / "docs/howto/use-rest.md"
COMMANDS = re.findall(r"^curl .*$", GUIDE.read_text(), re.MULTILINE)


@pytest.fixture(scope="module")
def started() -> Iterator[Broker]:
    settings = {"topics.partitions": 6, "rest.default_topic": "metrics.inbound"}
    with broker(http=True, in_process=False, settings=settings) as running:
        yield running


def curl(started: Broker, command: str) -> Any:
    words = shlex.split(command.replace("http://127.0.0.1:8080", started.http_url))
    ended = subprocess.run(
        [*words, "-sS", "--fail-with-body", "--max-time", "30"], capture_output=True, check=False
    )
    assert ended.returncode == 0, f"{command}: {ended.stdout.decode()} {ended.stderr.decode()}"
    return json.loads(ended.stdout) if ended.stdout[:1] == b"{" else ended.stdout


def test_every_request_of_the_guide_is_served(started: Broker) -> None:
    answers = {command.split("8080")[1].split(" ")[0]: curl(started, command) for command in COMMANDS}

    assert answers["/v1/topics/orders/publish"]["id"] == "orders/0/0"
    assert len(answers["/v1/topics/orders/batch"]["results"]) == 2
    assert answers["/v1/messages/orders/0/0"]["value"] == {"item": "lamp"}
    assert answers["/v1/topics/orders/partitions/0/messages?offset=0&count=100"]["messages"]
    assert answers["/health"] == answers["/v1/admin/health"] == {"status": "ok"}


def test_what_was_produced_is_consumed_from_the_default_topic(started: Broker) -> None:
    url = "curl http://127.0.0.1:8080"
    body = '{"topic": "metrics.inbound", "key": "client_123", "value": {"cpu": 0.5}}'

    produced = curl(started, f"{url}/produce -d '{body}'")
    place = f"partition={produced['partition']}&offset={produced['offset']}&count=100"
    consumed = curl(started, f"{url}/consume?{place}")

    assert [message["value"] for message in consumed["messages"]] == [{"cpu": 0.5}]
    assert consumed["next_offset"] == produced["offset"] + 1
