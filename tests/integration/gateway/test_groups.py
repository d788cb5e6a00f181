"""Groups over REST: members, polls, commits, and leases."""

import asyncio
import itertools
from typing import Any
from urllib.parse import quote

import pytest
from confluent_kafka import Consumer

from penstock.client.cluster.publisher import OutgoingRecord
from penstock.core.protocol.messages.delete_records import (
    DeleteRecordsRequest,
    DeleteRecordsRequestPartition,
    DeleteRecordsRequestTopic,
)
from penstock.server.gateway.options import RestOptions
from penstock.server.http.routes import groups
from penstock.testing import Broker
from tests.integration.gateway.conftest import RestClient

names = (f"groups-{number}" for number in itertools.count())


@pytest.fixture
def topic(rest: RestClient) -> str:
    name = next(names)
    assert rest("POST", "/v1/topics", {"name": name, "partitions": 2}).status_code == 201
    return name


def publish(rest: RestClient, topic: str, *values: Any, partition: int = 0) -> None:
    messages = [{"value": value, "partition": partition} for value in values]
    assert rest("POST", f"/v1/topics/{topic}/batch", {"messages": messages}).status_code == 200


def poll(rest: RestClient, group: str, member_id: str, **query: Any) -> list[dict[str, Any]]:
    given = {"member_id": member_id, "wait_ms": 5_000, **query}
    answer = rest("GET", f"/v1/groups/{group}/poll", params=given)
    assert answer.status_code == 200, answer.text
    return list(answer.json()["messages"])


def join(rest: RestClient, group: str, topic: str, mode: str) -> str:
    answer = rest("POST", f"/v1/groups/{group}/join", {"topics": [topic], "mode": mode})
    assert answer.status_code == 200, answer.text
    assert answer.json()["assigned_partitions"]
    return str(answer.json()["member_id"])


def test_a_member_leases_messages_and_acknowledges_them(rest: RestClient, topic: str) -> None:
    member = join(rest, topic, topic, "queue")
    publish(rest, topic, {"a": 1}, "text")

    messages = poll(rest, topic, member)

    assert [(each["value"], each["attempt"]) for each in messages] == [({"a": 1}, 1), ("text", 1)]
    first, second = (each["receipt"] for each in messages)
    acked = rest("POST", f"/v1/groups/{topic}/ack", {"receipts": [first]})
    assert (acked.status_code, acked.json()["settled"]) == (200, 1)
    again = rest("POST", f"/v1/groups/{topic}/ack", {"receipts": [first]})
    assert (again.status_code, again.json()["field"]) == (409, "receipts[0]")
    assert again.json()["code"] == "INVALID_RECORD_STATE"
    assert rest("POST", f"/v1/groups/{topic}/renew", {"receipts": [second]}).status_code == 200
    nacked = rest("POST", f"/v1/groups/{topic}/nack", {"receipts": [second], "delay_ms": 0})
    assert nacked.status_code == 200
    (back,) = poll(rest, topic, member)
    assert (back["value"], back["attempt"]) == ("text", 2)
    described = rest("GET", f"/v1/groups/{topic}").json()
    assert "queues" in described, described
    assert sum(each["leased"] for each in described["queues"]) == 1


def test_ack_nack_and_renew_take_the_same_body(rest: RestClient, topic: str) -> None:
    publish(rest, topic, "a")
    (message,) = poll(rest, topic, "worker", topics=topic)
    body = {"receipts": [message["receipt"]], "delay_ms": 60_000}

    answers = [rest("POST", f"/v1/groups/{topic}/{verb}", body) for verb in ("renew", "ack", "nack")]

    assert [each.status_code for each in answers] == [200, 200, 409], answers[1].text
    assert poll(rest, topic, "worker", topics=topic, wait_ms=0) == []


def test_a_message_without_headers_has_no_headers_but_the_field(rest: RestClient, topic: str) -> None:
    publish(rest, topic, "a")
    member = join(rest, f"{topic}-log", topic, "log")

    leased = poll(rest, topic, "worker", topics=topic)
    read = poll(rest, f"{topic}-log", member)

    assert [each["headers"] for each in leased + read] == [{}, {}]


@pytest.mark.parametrize("mode", ["queue", "log"])
def test_a_poll_that_does_not_say_how_many_has_as_many_as_is_set(
    embedded: Broker, rest: RestClient, topic: str, mode: str
) -> None:
    publish(rest, topic, *range(5))
    other = RestClient(embedded, RestOptions(poll_records_max=3))
    member = join(other, topic, topic, mode)

    counts = [len(poll(other, topic, member)), len(poll(other, topic, member, max=1))]
    other.close()

    assert counts == [3, 1]


def test_thousands_of_messages_are_polled_and_settled_at_once(rest: RestClient, topic: str) -> None:
    publish(rest, topic, *range(1_000))
    wrong = [f"w{number}" for number in range(1_500)]

    messages = poll(rest, topic, "worker", topics=topic, max=10_000)
    receipts = [each["receipt"] for each in messages]
    settled = rest("POST", f"/v1/groups/{topic}/ack", {"receipts": wrong + receipts}).json()

    assert len(messages) == settled["settled"] == 1_000
    assert [each["receipt"] for each in settled["results"] if "error" in each] == wrong
    beyond = rest("GET", f"/v1/groups/{topic}/poll?member_id=m&topics={topic}&max=10001").json()
    assert (beyond["field"], beyond["status"]) == ("max", 400)
    assert "10000" in beyond["detail"]


@pytest.mark.parametrize(("mode", "kind"), [("queue", "share"), ("log", "consumer")])
def test_a_group_shows_its_members_and_its_state(rest: RestClient, topic: str, mode: str, kind: str) -> None:
    member = join(rest, topic, topic, mode)

    shown = rest("GET", f"/v1/groups/{topic}").json()

    assert (shown["type"], shown["state"]) == (kind, "Stable")
    (row,) = shown["members"]
    assert (row["member_id"], row["topics"]) == (member, [topic])
    assert row["assignments"] == [{"topic": topic, "partitions": [0, 1]}]
    rest("POST", f"/v1/groups/{topic}/leave", {"member_id": member})
    left = rest("GET", f"/v1/groups/{topic}").json()
    assert (left["state"], left["members"]) == ("Empty", [])


def test_members_of_a_classic_group_are_shown(rest: RestClient, embedded: Broker, topic: str) -> None:
    consumer = Consumer({"bootstrap.servers": embedded.bootstrap_servers, "group.id": topic})
    consumer.subscribe([topic])
    while not consumer.assignment():
        consumer.poll(0.1)

    shown = rest("GET", f"/v1/groups/{topic}").json()
    consumer.close()

    assert (shown["type"], shown["state"]) == ("classic", "Stable")
    assert [each["assignments"] for each in shown["members"]] == [[{"topic": topic, "partitions": [0, 1]}]]


@pytest.mark.parametrize("prefix", ["", "/api"])
def test_a_group_may_have_slashes_in_its_name(rest: RestClient, topic: str, prefix: str) -> None:
    name = quote(f"{topic}/{prefix}/50%2F é", safe="")
    publish(rest, topic, "a")
    found = rest("GET", f"{prefix}/v1/groups/{name}/poll?member_id=m&topics={topic}&wait_ms=5000")
    assert [each["value"] for each in found.json()["messages"]] == ["a"]
    message_id = quote(found.json()["messages"][0]["id"], safe="")
    assert rest("GET", f"{prefix}/v1/messages/{message_id}").status_code == 200
    receipts = [each["receipt"] for each in found.json()["messages"]]
    assert rest("POST", f"{prefix}/v1/groups/{name}/ack", {"receipts": receipts}).status_code == 200
    assert rest("GET", f"{prefix}/v1/groups/{name}").json()["group"] == f"{topic}/{prefix}/50%2F é"


def test_each_wrong_receipt_gets_its_own_error(rest: RestClient, topic: str) -> None:
    publish(rest, topic, "one")
    (message,) = poll(rest, topic, "worker", topics=topic)

    wrong = rest("POST", f"/v1/groups/{topic}/ack", {"receipts": ["nonsense"]})
    assert (wrong.status_code, wrong.json()["field"]) == (400, "receipts[0]")
    mixed = rest("POST", f"/v1/groups/{topic}/ack", {"receipts": ["nonsense", message["receipt"]]})
    assert (mixed.status_code, mixed.json()["settled"]) == (200, 1)
    bad, good = mixed.json()["results"]
    assert (bad["error"]["status"], bad["error"]["field"]) == (400, "receipts[0]")
    assert good == {"receipt": message["receipt"]}
    assert rest("POST", f"/v1/groups/{topic}/ack", {"receipts": ["x", "y"]}).status_code == 409


def test_what_a_member_held_is_delivered_to_others_when_it_leaves(rest: RestClient, topic: str) -> None:
    leaver, stayer = (join(rest, topic, topic, "queue") for _ in range(2))
    publish(rest, topic, "one")
    (message,) = poll(rest, topic, leaver)

    assert rest("POST", f"/v1/groups/{topic}/leave", {"member_id": leaver}).status_code == 204

    (back,) = poll(rest, topic, stayer, wait_ms=20_000)
    assert (back["value"], back["attempt"]) == ("one", 2)
    late = rest("POST", f"/v1/groups/{topic}/ack", {"receipts": [message["receipt"]]})
    assert late.status_code == 409


def test_a_log_member_reads_on_from_its_last_poll_and_another_node_from_its_commit(
    rest: RestClient, topic: str
) -> None:
    member = join(rest, topic, topic, "log")
    publish(rest, topic, 1, 2, 3)
    assert [each["value"] for each in poll(rest, topic, member, max=2)] == [1, 2]
    position = {"topic": topic, "partition": 0, "offset": 1}
    committed = rest("POST", f"/v1/groups/{topic}/commit", {"member_id": member, "offsets": [position]})
    assert committed.json() == {"committed": 1}
    assert [each["value"] for each in poll(rest, topic, member)] == [3]

    # Another gateway knows nothing of the member.
    rest.backend.members._known.clear()
    messages = poll(rest, topic, member)
    assert [each["value"] for each in messages] == [2, 3]
    assert "receipt" not in messages[0]
    assert rest("GET", f"/v1/groups/{topic}").json()["offsets"] == [position]


@pytest.mark.parametrize("is_known", [True, False])
def test_a_log_member_goes_on_at_the_start_of_a_log_that_has_passed_its_position(
    rest: RestClient, topic: str, is_known: bool
) -> None:
    member = join(rest, topic, topic, "log")
    publish(rest, topic, *range(5))
    assert len(poll(rest, topic, member, max=2)) == 2
    position = {"topic": topic, "partition": 0, "offset": 1}
    rest("POST", f"/v1/groups/{topic}/commit", {"member_id": member, "offsets": [position]})
    delete_before(rest, topic, 0, 3)
    if not is_known:
        rest.backend.members._known.clear()

    assert [each["value"] for each in poll(rest, topic, member)] == [3, 4]
    delete_before(rest, topic, 0, 5)
    publish(rest, topic, 5)
    assert [each["value"] for each in poll(rest, topic, member)] == [5]


def delete_before(rest: RestClient, topic: str, partition: int, offset: int) -> None:
    """As retention does."""
    place = DeleteRecordsRequestPartition(partition_index=partition, offset=offset)
    rows = (DeleteRecordsRequestTopic(name=topic, partitions=(place,)),)
    request = DeleteRecordsRequest(topics=rows, timeout_ms=20_000)
    answer = rest.run(lambda: rest.backend.cluster.ask_leader(topic, partition, request))
    assert answer.topics[0].partitions[0].low_watermark == offset


def test_a_log_member_is_woken_by_a_message_in_any_of_its_partitions(rest: RestClient, topic: str) -> None:
    member = join(rest, topic, topic, "log")
    assert poll(rest, topic, member, wait_ms=0) == []
    publish(rest, topic, "late", partition=1)

    assert [each["value"] for each in poll(rest, topic, member)] == ["late"]


def test_a_log_member_waits_for_all_its_partitions_on_one_connection(rest: RestClient) -> None:
    topic = next(names)
    rest("POST", "/v1/topics", {"name": topic, "partitions": 50})
    member = join(rest, topic, topic, "log")
    nodes = rest.backend.cluster._nodes

    async def polled() -> tuple[int, list[Any]]:
        query = groups.PollQuery(member_id=member, wait_ms=20_000)
        waiting = asyncio.get_running_loop().create_task(groups._polled(rest.backend, topic, query))
        while not any(node._waiting for node in nodes.values()):  # noqa: ASYNC110
            await asyncio.sleep(0)
        connections = sum(len(node._waiting) for node in nodes.values())
        await rest.backend.publisher.publish(topic, [OutgoingRecord(None, b"1", partition=47)])
        return connections, (await waiting)[0].messages

    connections, messages = rest.run(polled)

    assert connections == 1
    assert [(each.partition, bytes(each.value)) for each in messages] == [(47, b"1")]


WAITING, AT_ONCE, UNSENT = "gone while it waits", "gone at once", "cannot be sent"


class GoneClient:
    """A client whose request arrives, and to whom nothing can be sent."""

    def __init__(self, rest: RestClient, fault: str) -> None:
        self._rest = rest
        self._fault = fault
        self._request = [{"type": "http.request", "body": b"", "more_body": False}]

    async def receive(self) -> Any:
        if self._request:
            return self._request.pop()
        if self._fault == UNSENT:
            await asyncio.Event().wait()
        nodes = self._rest.backend.cluster._nodes
        while self._fault == WAITING and not any(node._waiting for node in nodes.values()):  # noqa: ASYNC110
            await asyncio.sleep(0)
        return {"type": "http.disconnect"}

    async def send(self, _message: Any) -> None:
        raise ConnectionResetError


@pytest.mark.parametrize("mode", ["log", "queue"])
@pytest.mark.parametrize("fault", [WAITING, AT_ONCE, UNSENT])
def test_what_a_client_that_has_gone_did_not_get_is_delivered_again(
    rest: RestClient, topic: str, mode: str, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = join(rest, topic, topic, mode)
    if fault == WAITING:
        # There is nothing to lease, and no reason to take that long.
        monkeypatch.setattr(groups, "RECEIVE_SECONDS", 0.0)
    else:
        publish(rest, topic, "a")

    async def orphaned() -> None:
        path, query = f"/v1/groups/{topic}/poll", f"member_id={member}&wait_ms=60000"
        scope = {"type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "headers": []}
        client = GoneClient(rest, fault)
        served = rest.app({**scope, "query_string": query.encode()}, client.receive, client.send)
        await asyncio.wait_for(served, 20)

    rest.run(orphaned)
    if fault == WAITING:
        publish(rest, topic, "a")

    found = poll(rest, topic, member, wait_ms=10_000)
    assert [each["value"] for each in found] == ["a"]


def test_subscribe_answers_with_partitions(rest: RestClient, topic: str) -> None:
    answer = rest("POST", "/subscribe", {"group": topic, "topics": [topic]})

    assert answer.status_code == 200
    assert answer.json()["assigned_partitions"] == [0, 1]
    assert answer.json()["member_id"]
    listed = rest("GET", "/v1/groups").json()["groups"]
    assert [each["type"] for each in listed if each["group"] == topic] == ["consumer"]


@pytest.mark.parametrize("mode", ["queue", "log"])
def test_a_session_timeout_is_the_members_own(rest: RestClient, topic: str, mode: str) -> None:
    path = f"/v1/groups/{topic}/join"
    body = {"topics": [topic], "mode": mode}

    short = rest("POST", path, body | {"session_timeout_ms": 1_000})
    joined = rest("POST", path, body | {"session_timeout_ms": 6_000, "member_id": "m"})

    assert (short.status_code, short.json()["field"]) == (400, "session_timeout_ms")
    assert (joined.status_code, joined.json()["member_id"]) == (200, "m")


def test_two_log_members_share_the_partitions(rest: RestClient, topic: str) -> None:
    first = join(rest, topic, topic, "log")
    answer = rest("POST", f"/v1/groups/{topic}/join", {"topics": [topic], "mode": "log"})
    second = answer.json()["member_id"]

    def assigned(member: str) -> list[int]:
        answer = rest("POST", f"/v1/groups/{topic}/heartbeat", {"member_id": member})
        assert answer.status_code == 200, answer.text
        return list(answer.json()["assigned_partitions"])

    for _ in range(100):
        shares = assigned(first), assigned(second)
        if all(len(each) == 1 for each in shares):
            break
    assert sorted(shares[0] + shares[1]) == [0, 1]


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "field"),
    [
        ("POST", "join", {"topics": []}, 400, "topics"),
        ("POST", "join", {"topics": ["no-such-topic"]}, 404, None),
        ("POST", "join", {"topics": ["t"], "mode": "both"}, 400, "mode"),
        ("POST", "ack", {"receipts": []}, 400, "receipts"),
        ("POST", "nack", {"receipts": ["x"], "delay_ms": -1}, 400, "delay_ms"),
        ("POST", "commit", {"member_id": "n", "offsets": [{"topic": "t"}]}, 400, "offsets[0].partition"),
        ("POST", "heartbeat", {"member_id": "nobody"}, 404, None),
        ("GET", "poll?member_id=nobody", None, 404, None),
        ("GET", "poll", None, 400, "member_id"),
        ("GET", "poll?member_id=a&max=0", None, 400, "max"),
        ("GET", "poll?member_id=a&topics=,", None, 400, "topics"),
        ("GET", "poll?member_id=a&topics=no-such-topic", None, 404, None),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(
    rest: RestClient, method: str, path: str, body: Any, status: int, field: str | None
) -> None:
    answer = rest(method, f"/v1/groups/somebody/{path}", body)

    assert (answer.status_code, answer.json().get("field")) == (status, field), answer.text
    assert answer.headers["content-type"] == "application/problem+json"


def test_a_group_that_does_not_exist_is_not_found(rest: RestClient) -> None:
    assert rest("GET", "/v1/groups/nobody").status_code == 404
