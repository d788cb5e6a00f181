"""Dead letters over REST: the list, and the way back."""

import itertools

import pytest

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
    receipts = [each["receipt"] for each in poll(rest, topic, "worker", topics=topic)]
    body = {"receipts": receipts, "reject": True, "reason": "broken"}
    assert rest("POST", f"/v1/groups/{topic}/nack", body).status_code == 200
    for _ in range(1_000):
        answer = rest("GET", f"/v1/topics/{topic}/dlq")
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


def test_what_is_wrong_with_a_redrive_is_named(rest: RestClient, topic: str) -> None:
    give_up(rest, topic, "bad")
    path = f"/v1/topics/{topic}/dlq/redrive"

    wrong = rest("POST", path, {"ids": ["elsewhere/0/0"]})
    assert (wrong.status_code, wrong.json()["field"]) == (400, "ids[0]")
    assert rest("POST", path, {"to_topic": "no-such-topic"}).status_code == 404
    assert rest("POST", "/v1/topics/no-such-topic/dlq/redrive", {}).status_code == 404
    assert rest("GET", f"/v1/topics/{topic}/dlq?after=x").json()["field"] == "after"
