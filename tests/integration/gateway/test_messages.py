"""Publishing and reading messages over REST."""

import base64
import json
from typing import Any

import pytest

from penstock.server.gateway.options import RestOptions
from penstock.testing import Broker
from tests.integration.gateway.conftest import RestClient


def publish(rest: RestClient, topic: str, body: dict[str, Any]) -> dict[str, Any]:
    response = rest("POST", f"/v1/topics/{topic}/publish", body)
    assert response.status_code == 200, response.text
    return dict(response.json())


def read(rest: RestClient, topic: str, query: str = "") -> dict[str, Any]:
    response = rest("GET", f"/v1/topics/{topic}/partitions/0/messages{query}")
    assert response.status_code == 200, response.text
    return dict(response.json())


def test_what_is_json_stays_json_and_the_rest_is_base64(rest: RestClient) -> None:
    values: list[dict[str, Any]] = [
        {"value": {"a": [1, None, "ä"]}},
        {"value": "text"},
        {"value": 5},
        {"value": None},
        {"value_base64": base64.b64encode(b"\xff{").decode()},
    ]
    for value in values:
        publish(rest, "values", {"key": "k", **value})
    publish(
        rest,
        "values",
        {"key_base64": "/w==", "value_base64": "e30=", "headers": {"h": {"base64": "/w=="}, "t": "x"}},
    )

    *messages, last = read(rest, "values")["messages"]

    assert [{name: one[name] for name in one if name.startswith("value")} for one in messages] == values
    assert [one["key"] for one in messages] == ["k"] * 5
    assert (last["key_base64"], last["value"]) == ("/w==", {})
    assert last["headers"] == {"h": {"base64": "/w=="}, "t": "x"}


def test_a_message_is_found_by_its_id(rest: RestClient) -> None:
    stored = publish(rest, "ids", {"value": 1, "priority": 7, "ttl_ms": 60_000})

    message = rest("GET", f"/v1/messages/{stored['id']}").json()

    assert (message["offset"], message["timestamp"]) == (stored["offset"], stored["timestamp"])
    assert message["headers"] == {"penstock-priority": "7", "penstock-ttl-ms": "60000"}
    assert rest("GET", f"/v1/topics/ids/partitions/0/messages/{stored['offset']}").json() == message
    assert rest("GET", f"/v1/topics/ids/partitions/0/messages/{stored['offset'] + 1}").status_code == 404
    assert rest("GET", "/v1/messages/ids/0/99999999999999999999").json()["field"] == "offset"
    assert rest("GET", "/v1/messages/ids/x/0").json()["field"] == "partition"
    assert rest("GET", "/v1/messages/ids/7/0").status_code == 404
    assert rest("GET", "/v1/topics/nowhere/partitions/0/messages").status_code == 404


def test_a_range_goes_on_where_the_last_one_ended(rest: RestClient) -> None:
    body = {"messages": [{"value": number} for number in range(10)]}
    assert rest("POST", "/v1/topics/ranges/batch", body).status_code == 200

    first = read(rest, "ranges", "?count=4")
    second = read(rest, "ranges", f"?offset={first['next_offset']}&count=100")

    assert [one["value"] for one in first["messages"]] == [0, 1, 2, 3]
    assert [one["value"] for one in second["messages"]] == [4, 5, 6, 7, 8, 9]
    assert read(rest, "ranges", "?offset=latest&wait_ms=20") == {"messages": [], "next_offset": 10}
    assert rest("GET", "/v1/topics/ranges/partitions/0/messages?offset=11").status_code == 416


@pytest.mark.parametrize("acks", ["none", "leader", "all"])
def test_acks_say_who_must_have_a_message(rest: RestClient, acks: str) -> None:
    publish(rest, "acked", {"value": 0})

    stored = publish(rest, "acked", {"value": 1, "acks": acks})

    assert (stored["offset"] is None) == (acks == "none")
    assert rest("POST", f"/v1/topics/acked/publish?acks={acks}", {"value": 1}).status_code == 200
    body = {"topic": "acked", "value": 1}
    for produced in (
        rest("POST", "/produce", body | {"acks": acks}),
        rest("POST", f"/produce?acks={acks}", body),
        rest("POST", "/produce?acks=all", body | {"acks": acks}),
    ):
        assert (produced.json()["offset"] is None) == (acks == "none"), produced.text


@pytest.mark.parametrize("is_stream", [False, True])
def test_each_message_of_a_batch_may_have_acks_of_its_own(rest: RestClient, is_stream: bool) -> None:
    levels = ["none", None, "leader", "none", "all"]
    messages = [
        {"value": number} | ({} if level is None else {"acks": level}) for number, level in enumerate(levels)
    ]
    path = "/v1/topics/levels/batch"
    publish(rest, "levels", {"value": "before"})

    if is_stream:
        lines = b"\n".join(json.dumps(message).encode() for message in messages)
        answer = rest("POST", path, lines, headers={"content-type": "application/x-ndjson"})
        results = [json.loads(line) for line in answer.text.splitlines()]
    else:
        results = rest("POST", path, {"messages": messages, "acks": "leader"}).json()["results"]

    assert [one["offset"] is None for one in results] == [level == "none" for level in levels]
    stored = {results[number]["offset"]: number for number in (1, 2, 4)}
    found = {one["offset"]: one["value"] for one in read(rest, "levels")["messages"]}
    assert {offset: found[offset] for offset in stored} == stored


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "value"),
        ({"value": 1, "value_base64": ""}, "value_base64"),
        ({"value_base64": "?"}, "value_base64"),
        ({"key": "a", "key_base64": "", "value": 1}, "key_base64"),
        ({"value": 1, "acks": "some"}, "acks"),
        ({"value": 1, "priority": 10}, "priority"),
        ({"value": 1, "partition": 9}, "partition"),
        ({"value": 1, "delay_ms": 1, "deliver_at": 1}, "deliver_at"),
        ({"value": 1, "deliver_at": "tomorrow"}, "deliver_at"),
        ({"value": 1, "headers": {"a": {"base64": "?"}}}, "headers.a.base64"),
        ({"value": 1, "delay": 1}, "delay"),
    ],
)
def test_a_message_that_cannot_be_names_the_field(rest: RestClient, body: dict[str, Any], field: str) -> None:
    response = rest("POST", "/v1/topics/fields/publish", body)

    assert response.status_code in (400, 404), response.text
    assert response.json()["field"] == field
    assert rest("POST", "/v1/topics/fields/batch", {"messages": [{"value": 1}, body]}).status_code in (
        200,
        400,
    )


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/topics", b'{"name": "\xff"}'),
        ("POST", "/v1/topics/utf/publish", b'{"key": "\xff", "value": 1}'),
        ("POST", "/v1/topics/utf/publish", b'{"value": "\xff"}'),
        ("POST", "/v1/topics/utf/batch", b'{"messages": [{"headers": {"a": "\xff"}, "value": 1}]}'),
        ("POST", "/produce", b'{"topic": "utf", "key": "\xff", "value": 1}'),
        ("POST", "/v1/groups/g/join", b'{"topics": ["\xff"]}'),
    ],
)
def test_a_body_that_is_not_utf_8_is_not_json(rest: RestClient, method: str, path: str, body: bytes) -> None:
    response = rest(method, path, body)

    assert response.status_code == 400, response.text
    assert "UTF-8" in response.json()["detail"]


def test_a_line_that_is_not_utf_8_does_not_hold_up_the_others(rest: RestClient) -> None:
    lines = b'{"value": 1}\n{"key": "\xff", "value": 2}\n{"value": "\xff"}\n{"value": 4}\n'
    headers = {"content-type": "application/x-ndjson"}

    response = rest("POST", "/v1/topics/utf-lines/batch", lines, headers=headers)

    results = [json.loads(line) for line in response.text.splitlines()]
    assert [one.get("error", {}).get("status") for one in results] == [None, 400, 400, None], results
    assert [one["value"] for one in read(rest, "utf-lines")["messages"]] == [1, 4]


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"delay_ms": 367 * 86_400_000}, "delay_ms"),
        ({"deliver_at": 10**15 - 1}, "deliver_at"),
        ({"deliver_at": "9999-12-31T23:59:59Z"}, "deliver_at"),
    ],
    ids=["delay", "milliseconds", "date"],
)
def test_a_time_that_is_too_late_names_the_field(
    rest: RestClient, fields: dict[str, Any], field: str
) -> None:
    body = {"value": 1} | fields

    response = rest("POST", "/v1/topics/too-late/publish", body)
    batch = rest("POST", "/v1/topics/too-late/batch", {"messages": [{"value": 1}, body]})

    assert (response.status_code, response.json().get("field")) == (400, field), response.text
    assert (batch.status_code, batch.json().get("field")) == (400, f"messages[1].{field}"), batch.text


def test_a_date_before_1970_is_past_as_any_other(rest: RestClient) -> None:
    message = {"value": "ancient", "deliver_at": "0001-01-01T00:00:00Z"}

    assert rest("POST", "/v1/topics/ancient/publish", message).status_code == 202
    assert [one["value"] for one in read(rest, "ancient", "?wait_ms=20000")["messages"]] == ["ancient"]


def test_a_key_that_chooses_no_partition_is_what_is_wrong(rest: RestClient, embedded: Broker) -> None:
    wide = RestClient(embedded, RestOptions())

    response = wide("POST", "/v1/topics/wide-keys/publish", {"key": "k" * 2_000_000, "value": 1})
    wide.close()

    assert (response.status_code, response.json()["field"]) == (413, "key"), response.text


@pytest.mark.parametrize("fields", [{}, {"delay_ms": 10}], ids=["now", "later"])
def test_internal_topics_are_not_for_clients(rest: RestClient, fields: dict[str, int]) -> None:
    rest("POST", "/v1/topics/some/publish", {"value": 1, "delay_ms": 1})

    published = rest("POST", "/v1/topics/__delayed/publish", {"value": 1} | fields)
    deleted = rest("DELETE", "/v1/topics/__delayed")

    assert (published.status_code, published.json()["field"]) == (400, "topic"), published.text
    assert (deleted.status_code, deleted.json()["field"]) == (400, "topic"), deleted.text
    assert rest("GET", "/v1/topics/__delayed").status_code == 200


def test_a_batch_says_what_became_of_each_message(rest: RestClient) -> None:
    messages = [{"value": 1}, {"value": 2, "partition": 5}]

    results = rest("POST", "/v1/topics/batches/batch", {"messages": messages}).json()["results"]

    assert results[0]["id"] == "batches/0/0"
    assert results[1]["error"]["field"] == "partition"
    refused = rest("POST", "/v1/topics/batches/batch", {"messages": [{"value": 1}, {"value_base64": "?"}]})
    assert refused.json()["field"] == "messages[1].value_base64"


def test_lines_are_published_as_they_come(rest: RestClient) -> None:
    lines = [json.dumps({"value": number}).encode() for number in range(1_200)]
    lines[600] = b"{"
    headers = {"content-type": "application/x-ndjson"}

    response = rest("POST", "/v1/topics/lines/batch", b"\n".join(lines), headers=headers)
    summary = rest("POST", "/v1/topics/lines/batch?results=summary", b"\n".join(lines), headers=headers)

    results = [json.loads(line) for line in response.text.splitlines()]
    assert len(results) == 1_200
    assert results[600]["error"]["detail"].startswith("this is not JSON")
    assert [one["offset"] for one in results if "offset" in one] == list(range(1_199))
    assert summary.json()["published"] == 1_199
    assert [one["line"] for one in summary.json()["errors"]] == [601]
    apart = rest(
        "POST", "/v1/topics/lines/batch?results=summary", b'\n\n{"value": 1}\n\n{\n', headers=headers
    )
    assert [one["line"] for one in apart.json()["errors"]] == [5]
    too_long = rest("POST", "/v1/topics/lines/batch", b"x" * 100_001, headers=headers)
    assert too_long.status_code == 413


def test_a_delayed_message_is_published_later_or_cancelled(rest: RestClient) -> None:
    rest("POST", "/v1/topics", {"name": "delays"})
    soon = rest("POST", "/v1/topics/delays/publish", {"value": "soon", "deliver_at": "2020-01-01T00:00:00Z"})
    never = rest("POST", "/v1/topics/delays/publish", {"value": "never", "delay_ms": 3_600_000})

    assert (soon.status_code, never.status_code) == (202, 202), soon.text + never.text
    place = f"/v1/delays/{never.json()['delay_id']}"
    listed = rest("GET", "/v1/delays?topic=delays").json()["delays"]
    assert never.json()["delay_id"] in [one["delay_id"] for one in listed]
    assert rest("DELETE", place).status_code == 204
    assert rest("DELETE", place).status_code == 409
    assert [one["value"] for one in read(rest, "delays", "?wait_ms=20000")["messages"]] == ["soon"]


def test_a_delayed_message_creates_its_topic_as_any_other_does(rest: RestClient) -> None:
    messages = [{"value": 1, "delay_ms": 3_600_000}, {"value": 2, "deliver_at": 1}]

    single = rest("POST", "/v1/topics/created-later/publish", messages[0])
    batch = rest("POST", "/v1/topics/created-later-too/batch", {"messages": messages})
    wrong = rest("POST", "/v1/topics/no good/publish", messages[0])
    elsewhere = rest("POST", "/v1/topics/created-later/publish", messages[0] | {"partition": 99})

    assert (single.status_code, batch.status_code) == (202, 200), single.text + batch.text
    assert all(one["delay_id"] for one in batch.json()["results"])
    assert [one["value"] for one in read(rest, "created-later-too", "?wait_ms=20000")["messages"]] == [2]
    assert (wrong.status_code, wrong.json()["field"]) == (400, "topic")
    assert (elsewhere.status_code, elsewhere.json()["field"]) == (404, "partition"), elsewhere.text


def test_produce_and_consume_have_a_default_topic(rest: RestClient) -> None:
    produced = rest("POST", "/produce", {"key": "client_123", "value": {"cpu": 0.5}}).json()
    named = rest("POST", "/produce", {"topic": "named", "value": 1}).json()

    consumed = rest("GET", f"/consume?partition=0&offset={produced['offset']}&count=100").json()

    assert [one["value"] for one in consumed["messages"]] == [{"cpu": 0.5}]
    assert consumed["next_offset"] == produced["offset"] + 1
    assert (named["partition"], named["offset"]) == (0, 0)
    assert rest("GET", "/consume?topic=named").json()["messages"][0]["topic"] == "named"
