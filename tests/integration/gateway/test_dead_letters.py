"""Dead letters over REST: the list, and the way back."""

import asyncio
import itertools
from typing import Any

import pytest

from penstock.server.http.routes import dlq
from tests.integration.gateway.conftest import RestClient
from tests.integration.gateway.test_groups import poll, publish

names = (f"letters-{number}" for number in itertools.count())


@pytest.fixture
def topic(rest: RestClient) -> str:
    name = next(names)
    assert rest("POST", "/v1/topics", {"name": name, "partitions": 1}).status_code == 201
    return name


def give_up(rest: RestClient, topic: str, *values: str) -> list[dict[str, object]]:
    """The dead letters of these messages."""
    publish(rest, topic, *values)
    receipts = [each["receipt"] for each in poll(rest, topic, "worker", topics=topic, max=1_000)]
    body = {"receipts": receipts, "reject": True, "reason": "broken"}
    assert rest("POST", f"/v1/groups/{topic}/nack", body).status_code == 200
    for _ in range(1_000):
        answer = rest("GET", f"/v1/topics/{topic}/dlq?count=1000")
        assert answer.status_code == 200, answer.text
        letters: list[dict[str, object]] = answer.json()["dead_letters"]
        if len(letters) == len(values):
            return letters
    raise AssertionError("the messages are not given up")


def test_a_dead_letter_says_where_it_was_and_why_it_is_there(rest: RestClient, topic: str) -> None:
    assert rest("GET", f"/v1/topics/{topic}/dlq").json() == {"dead_letters": []}

    (letter,) = give_up(rest, topic, "bad")

    assert (letter["value"], letter["origin"], letter["attempts"]) == ("bad", f"{topic}/0/0", 1)
    assert (letter["id"], letter["reason"]) == (f"{topic}.dlq/0/0", "broken")


def test_a_dry_run_moves_nothing_and_a_redrive_moves_each_once(rest: RestClient, topic: str) -> None:
    letters = give_up(rest, topic, "a", "b", "c")
    path = f"/v1/topics/{topic}/dlq/redrive"

    dry = rest("POST", path, {"dry_run": True}).json()
    assert (dry["moved"], dry["dry_run"]) == (3, True)
    assert len(rest("GET", f"/v1/topics/{topic}/dlq").json()["dead_letters"]) == 3

    chosen = rest("POST", path, {"ids": [letters[1]["id"]]}).json()
    assert chosen["results"] == [{"id": letters[1]["id"], "to": f"{topic}/0"}]
    (back,) = poll(rest, topic, "worker", topics=topic)
    assert (back["value"], back["attempt"]) == ("b", 1)

    rest_of_them = rest("POST", path, {"rate_per_second": 1_000}).json()
    assert (rest_of_them["moved"], rest_of_them["refused"]) == (2, 0)
    assert rest("POST", path, {}).json()["moved"] == 0
    assert rest("GET", f"/v1/topics/{topic}/dlq").json() == {"dead_letters": []}
    assert sorted(each["value"] for each in poll(rest, topic, "worker", topics=topic)) == ["a", "c"]


def test_a_redrive_without_a_body_moves_all_of_them(rest: RestClient, topic: str) -> None:
    values = [f"v{number}" for number in range(450)]
    give_up(rest, topic, *values)
    path = f"/v1/topics/{topic}/dlq/redrive"

    dry = rest("POST", path, {"dry_run": True}).json()
    some = rest("POST", path, {"dry_run": True, "max": 205}).json()
    moved = rest("POST", path).json()

    assert (dry["moved"], some["moved"], moved["moved"]) == (450, 205, 450)
    assert len(frozenset(each["id"] for each in dry["results"])) == 450
    assert rest("GET", f"/v1/topics/{topic}/dlq").json() == {"dead_letters": []}


def test_a_redrive_ends_with_its_client(rest: RestClient, topic: str) -> None:
    give_up(rest, topic, "a", "b", "c")
    request = [{"type": "http.request", "body": b'{"rate_per_second": 0.01}', "more_body": False}]

    async def receive() -> Any:
        return request.pop() if request else {"type": "http.disconnect"}

    async def send(_message: Any) -> None:
        raise ConnectionResetError

    async def orphaned() -> None:
        path = f"/v1/topics/{topic}/dlq/redrive"
        scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "headers": []}
        await asyncio.wait_for(rest.app({**scope, "query_string": b""}, receive, send), 20)

    rest.run(orphaned)

    assert len(rest("GET", f"/v1/topics/{topic}/dlq").json()["dead_letters"]) >= 2


def test_a_redrive_that_is_slow_ends_after_a_while(
    rest: RestClient, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    give_up(rest, topic, "a", "b")
    # Long enough for one, and much shorter than the rate has it.
    monkeypatch.setattr(dlq, "REDRIVE_SECONDS_MAX", 2)

    answer = rest("POST", f"/v1/topics/{topic}/dlq/redrive", {"rate_per_second": 1e-9})

    assert answer.json()["moved"] == 1
    assert len(rest("GET", f"/v1/topics/{topic}/dlq").json()["dead_letters"]) == 1


def test_what_is_wrong_with_a_redrive_is_named(rest: RestClient, topic: str) -> None:
    give_up(rest, topic, "bad")
    path = f"/v1/topics/{topic}/dlq/redrive"

    wrong = rest("POST", path, {"ids": ["elsewhere/0/0"]})
    assert (wrong.status_code, wrong.json()["field"]) == (400, "ids[0]")
    assert rest("POST", path, {"to_topic": "no-such-topic"}).status_code == 404
    assert rest("POST", "/v1/topics/no-such-topic/dlq/redrive", {}).status_code == 404
    assert rest("GET", f"/v1/topics/{topic}/dlq?after=x").json()["field"] == "after"
