"""The requests of the design, as curl, a gRPC client and a WebSocket client send them to `penstock up`.

They are what people know from other queues: what is written in the plans is what a node must serve, with the
status and the fields that were promised.
"""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import msgspec
import pytest
import yaml
from google.protobuf.empty_pb2 import Empty
from websockets.sync.client import ClientConnection, connect

from penstock.testing import broker
from penstock.v1 import penstock_pb2 as proto
from penstock.v1.penstock_pb2_grpc import PenstockStub
from tests.support.clusters import until
from tests.support.nodes import NodeProcess

# Where the plans have the node.
WRITTEN = "http://localhost:8080"
INBOUND = "metrics.inbound"
SECONDS = 60


class Answer(NamedTuple):
    """What curl printed."""

    status: int
    content_type: str
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)


class Curl:
    """Runs the commands of the plans, at the address that the node has here."""

    def __init__(self, url: str) -> None:
        self._url = url

    def __call__(self, command: str, body: Any = None) -> Answer:
        """`body` is that of a command without `-d`."""
        words = shlex.split(command.replace(WRITTEN, self._url))
        assert words[0] == "curl"
        if body is not None:
            words += ["-d", json.dumps(body)]
        marks = ["-sS", "--max-time", str(SECONDS), "-w", "\n%{content_type}\n%{http_code}"]
        ended = subprocess.run([*words, *marks], capture_output=True, text=True, check=False)
        assert ended.returncode == 0, f"{command}: {ended.stderr}"
        text, content_type, status = ended.stdout.rsplit("\n", 2)
        return Answer(int(status), content_type, text)

    def ask(self, method: str, path: str, body: Any = None, status: int = 200) -> Any:
        """The JSON of a request that is written as a method and a path."""
        answer = self(f"curl -X {method} '{WRITTEN}{path}'", body)
        assert answer.status == status, f"{method} {path}: {answer}"
        return answer.json if answer.text else None


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    directory = tmp_path_factory.mktemp("design") / "data"
    started = NodeProcess(directory, "rest.enabled=true", f"rest.default_topic={INBOUND}").start()
    yield started
    started.kill()


@pytest.fixture(scope="module")
def curl(node: NodeProcess) -> Curl:
    return Curl(f"http://{node.ready['http']}")


@pytest.fixture
def penstock(node: NodeProcess) -> Iterator[Any]:
    with grpc.insecure_channel(node.ready["grpc"]) as channel:
        grpc.channel_ready_future(channel).result(SECONDS)
        yield PenstockStub(channel)  # type: ignore[no-untyped-call]


# The buffer between ingestion and storage: produce, consume, subscribe.


def test_produce_and_consume_answer_with_partitions_and_offsets(curl: Curl, tmp_path: Path) -> None:
    # Of so many partitions the key has the third.
    curl.ask("POST", "/v1/topics", {"name": INBOUND, "partitions": 21}, 201)
    fill(curl, tmp_path, 12_847)
    body = '{"topic": "metrics.inbound", "key": "client_123", "value": {"cpu": 0.5}}'

    produced = curl(f"curl -X POST {WRITTEN}/produce -d '{body}'")
    fill(curl, tmp_path, 150)
    consumed = curl(f"curl '{WRITTEN}/consume?partition=3&offset=12847&count=100'")

    assert (produced.status, produced.content_type) == (200, "application/json")
    assert (produced.json["partition"], produced.json["offset"]) == (3, 12_847)
    assert (consumed.status, consumed.content_type) == (200, "application/json")
    assert frozenset(consumed.json) == {"messages", "next_offset"}
    assert consumed.json["next_offset"] == 12_947
    messages = consumed.json["messages"]
    assert [each["offset"] for each in messages] == list(range(12_847, 12_947))
    assert (messages[0]["key"], messages[0]["value"]) == ("client_123", {"cpu": 0.5})


def fill(curl: Curl, directory: Path, count: int) -> None:
    lines = directory / "lines"
    lines.write_text('{"value": 0, "partition": 3}\n' * count)
    url = f"{WRITTEN}/v1/topics/{INBOUND}/batch?results=summary"
    command = f"curl -H 'Content-Type: application/x-ndjson' --data-binary @{lines} '{url}'"
    assert curl(command).json["published"] == count


def test_subscribe_shares_the_partitions_among_the_workers(curl: Curl) -> None:
    topic = "metrics.shared"
    curl.ask("POST", "/v1/topics", {"name": topic, "partitions": 12}, 201)
    command = f'curl -X POST {WRITTEN}/subscribe -d \'{{"group": "storage-workers", "topics": ["{topic}"]}}\''

    answers = [curl(command) for _ in range(4)]
    members = [each.json["member_id"] for each in answers]

    def assigned() -> list[list[int]]:
        path = "/v1/groups/storage-workers/heartbeat"
        beats = [curl.ask("POST", path, {"member_id": member}) for member in members]
        return [each["assigned_partitions"] for each in beats]

    assert [each.status for each in answers] == [200] * 4
    assert answers[0].json["assigned_partitions"] == list(range(12))
    until(lambda: [len(each) for each in assigned()] == [3] * 4, "each has its share")
    assert sorted(partition for each in assigned() for partition in each) == list(range(12))


# REST.


def test_topics_are_created_listed_shown_and_deleted(curl: Curl) -> None:
    body = {"name": "orders", "partitions": 3, "replication_factor": 1, "config": {"retention.ms": 60_000}}

    created = curl.ask("POST", "/v1/topics", body, 201)
    listed = curl.ask("GET", "/v1/topics")
    shown = curl.ask("GET", "/v1/topics/orders")

    assert (created["name"], created["partitions"], created["replication_factor"]) == ("orders", 3, 1)
    assert "orders" in [each["name"] for each in listed["topics"]]
    assert shown == created
    assert curl.ask("DELETE", "/v1/topics/orders", status=204) is None
    missing = curl(f"curl {WRITTEN}/v1/topics/orders")
    assert (missing.status, missing.content_type) == (404, "application/problem+json")


def test_messages_are_published_alone_and_in_batches(curl: Curl) -> None:
    one = {
        "key": "k",
        "value": {"a": 1},
        "headers": {"h": "x"},
        "partition": 0,
        "priority": 5,
        "ttl_ms": 60_000,
    }
    coded = {"value_base64": "/w==", "partition": 0, "acks": "leader"}
    later = {"value": "later", "delay_ms": 3_600_000}
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    dated = {"value": "dated", "deliver_at": tomorrow.isoformat()}

    stored = curl.ask("POST", "/v1/topics/published/publish", one)
    results = curl.ask("POST", "/v1/topics/published/batch", {"messages": [one, coded]})["results"]
    delayed = [curl.ask("POST", "/v1/topics/published/publish", each, 202) for each in (later, dated)]
    read = curl.ask("GET", "/v1/topics/published/partitions/0/messages?offset=0&count=2&wait_ms=1000")
    found = curl.ask("GET", "/v1/topics/published/partitions/0/messages/0")

    assert (stored["partition"], stored["offset"]) == (0, 0)
    assert stored["timestamp"] > 0
    assert [(each["partition"], each["offset"]) for each in results] == [(0, 1), (0, 2)]
    assert all(each["delay_id"] for each in delayed)
    assert [each["value"] for each in read["messages"]] == [{"a": 1}, {"a": 1}]
    assert read["next_offset"] == 2
    assert found == curl.ask("GET", f"/v1/messages/{stored['id']}")
    assert found["headers"]["h"] == "x"
    for acks in ("none", "leader", "all"):
        answer = curl.ask("POST", "/v1/topics/published/publish", {"value": 1, "acks": acks})
        assert (answer["offset"] is None) == (acks == "none")


def test_a_member_of_a_queue_polls_and_settles(curl: Curl) -> None:
    curl.ask("POST", "/v1/topics", {"name": "jobs", "partitions": 2}, 201)
    curl.ask("POST", "/v1/topics/jobs/batch", {"messages": [{"key": "k", "value": n} for n in range(3)]})
    path = "/v1/groups/workers"

    joined = curl.ask(
        "POST", f"{path}/join", {"topics": ["jobs"], "mode": "queue", "session_timeout_ms": 30_000}
    )
    member = joined["member_id"]
    beat = curl.ask("POST", f"{path}/heartbeat", {"member_id": member})
    polled = curl.ask("GET", f"{path}/poll?member_id={member}&max=500&wait_ms=20000")["messages"]
    receipts = [each["receipt"] for each in polled]
    answers = [
        curl.ask("POST", f"{path}/ack", {"receipts": receipts[:1]}),
        curl.ask("POST", f"{path}/renew", {"receipts": receipts[1:], "delay_ms": 60_000}),
        curl.ask("POST", f"{path}/nack", {"receipts": receipts[1:], "delay_ms": 0}),
    ]
    again = curl.ask("GET", f"{path}/poll?member_id={member}&wait_ms=20000")["messages"]
    shown = curl.ask("GET", path)

    assert joined["assigned_partitions"] == beat["assigned_partitions"] == [0, 1]
    assert [each["value"] for each in polled] == [0, 1, 2]
    fields = {"topic", "partition", "offset", "key", "value", "headers", "timestamp", "receipt", "attempt"}
    assert all(fields <= frozenset(each) for each in polled)
    assert [each["settled"] for each in answers] == [1, 2, 2]
    assert [(each["value"], each["attempt"]) for each in again] == [(1, 2), (2, 2)]
    assert [each["member_id"] for each in shown["members"]] == [member]
    assert "workers" in [each["group"] for each in curl.ask("GET", "/v1/groups")["groups"]]
    assert curl.ask("POST", f"{path}/leave", {"member_id": member}, 204) is None
    assert curl(f"curl {WRITTEN}{path}/poll?member_id={member}").status == 404


def test_a_member_that_reads_the_log_polls_and_commits(curl: Curl) -> None:
    curl.ask("POST", "/v1/topics", {"name": "events", "partitions": 1}, 201)
    curl.ask("POST", "/v1/topics/events/batch", {"messages": [{"value": n} for n in range(3)]})
    path = "/v1/groups/readers"

    member = curl.ask("POST", f"{path}/join", {"topics": ["events"], "mode": "log"})["member_id"]
    polled = curl.ask("GET", f"{path}/poll?member_id={member}&max=2&wait_ms=20000")["messages"]
    offsets = [{"topic": "events", "partition": 0, "offset": polled[-1]["offset"] + 1}]
    committed = curl.ask("POST", f"{path}/commit", {"member_id": member, "offsets": offsets})
    curl.ask("POST", f"{path}/leave", {"member_id": member}, 204)
    other = curl.ask("POST", f"{path}/join", {"topics": ["events"], "mode": "log"})["member_id"]
    rest = curl.ask("GET", f"{path}/poll?member_id={other}&wait_ms=20000")["messages"]

    assert [each["value"] for each in polled] == [0, 1]
    assert committed == {"committed": 1}
    assert curl.ask("GET", path)["offsets"] == offsets
    assert [each["value"] for each in rest] == [2]


def test_dead_letters_are_listed_and_redriven(curl: Curl) -> None:
    curl.ask("POST", "/v1/topics/letters/publish", {"value": "bad"})
    poll = "/v1/groups/givers-up/poll?member_id=w&topics=letters&wait_ms=20000"
    # Three retries: the fourth delivery is the last one.
    for attempt in range(1, 5):
        (message,) = curl.ask("GET", poll)["messages"]
        assert message["attempt"] == attempt
        curl.ask("POST", "/v1/groups/givers-up/nack", {"receipts": [message["receipt"]], "delay_ms": 0})
    until(lambda: bool(curl.ask("GET", "/v1/topics/letters/dlq")["dead_letters"]), "a dead letter")

    (letter,) = curl.ask("GET", "/v1/topics/letters/dlq")["dead_letters"]
    dry = curl.ask("POST", "/v1/topics/letters/dlq/redrive", {"dry_run": True})
    moved = curl.ask("POST", "/v1/topics/letters/dlq/redrive")
    (back,) = curl.ask("GET", poll)["messages"]

    assert (letter["topic"], letter["value"], letter["attempts"]) == ("letters.dlq", "bad", 4)
    assert (dry["moved"], moved["moved"]) == (1, 1)
    assert (back["value"], back["attempt"]) == ("bad", 1)


# Names of the design; those with labels show up with the first value.
METRICS = [
    "log_size_bytes",
    "log_segments",
    "log_append_seconds",
    "messages_produced_total",
    "bytes_produced_total",
    "produce_errors_total",
    "produce_seconds",
    "messages_consumed_total",
    "consumer_lag",
    "consumer_lag_seconds",
    "visibility_timeouts_total",
    "dead_lettered_total",
    "partition_leader",
    "replication_lag_messages",
    "rebalance_seconds",
    "nodes",
    "request_seconds",
]


def test_health_metrics_and_the_cluster_are_shown(curl: Curl) -> None:
    health = curl(f"curl {WRITTEN}/v1/admin/health")
    metrics = curl(f"curl {WRITTEN}/v1/admin/metrics")
    cluster = curl.ask("GET", "/v1/admin/cluster")

    assert (health.status, health.json) == (200, {"status": "ok"})
    assert (metrics.status, metrics.content_type.split(";")[0]) == (200, "text/plain")
    families = {line.split(" ")[2] for line in metrics.text.splitlines() if line.startswith("# TYPE ")}
    assert [name for name in METRICS if f"penstock_{name}" not in families] == []
    assert [each["id"] for each in cluster["brokers"]] == [1]
    assert curl(f"curl {WRITTEN}/metrics").status == 200


def test_a_cluster_of_three_takes_the_first_steps() -> None:
    with broker(nodes=3, http=True) as cluster:
        curl = Curl(cluster.nodes[1].http_url)

        health = curl(f"curl {WRITTEN}/health")
        created = curl(
            f"""curl -X POST {WRITTEN}/api/v1/topics \
             -H "Content-Type: application/json" \
             -d '{{
               "name": "test-topic",
               "partitions": 10,
               "replication_factor": 3
             }}'"""
        )

    assert (health.status, health.json) == (200, {"status": "ok"})
    assert created.status == 201, created.text
    assert (created.json["partitions"], created.json["replication_factor"]) == (10, 3)


# gRPC.


def test_every_call_of_the_grpc_service_is_served(penstock: Any) -> None:
    topic = penstock.CreateTopic(proto.CreateTopicRequest(name="calls", partitions=1))
    listed = penstock.ListTopics(Empty())
    published = penstock.Publish(proto.PublishRequest(topic="calls", key=b"k", value=b"0"))
    requests = [proto.PublishRequest(topic="calls", value=b"%d" % n) for n in (1, 2)]
    streamed = list(penstock.PublishStream(iter(requests), timeout=SECONDS))

    assert isinstance(topic, proto.Topic)
    assert (topic.name, topic.partitions) == ("calls", 1)
    assert "calls" in [each.name for each in listed.topics]
    assert (published.partition, published.offset, published.id) == (0, 0, "calls/0/0")
    assert [each.offset for each in streamed] == [1, 2]

    stream = penstock.Subscribe(proto.SubscribeRequest(topics=["calls"], group="callers"), timeout=SECONDS)
    messages = [next(stream) for _ in range(3)]
    receipts = [each.receipt for each in messages]
    assert [each.value for each in messages] == [b"0", b"1", b"2"]
    assert isinstance(penstock.Ack(proto.AckRequest(group="callers", receipts=receipts)), Empty)
    stream.cancel()

    position = proto.Position(topic="calls", partition=0, offset=2)
    assert isinstance(penstock.Commit(proto.CommitRequest(group="log", offsets=[position])), Empty)
    log = proto.SubscribeRequest(topics=["calls"], group="log", mode=proto.MODE_LOG)
    stream = penstock.Subscribe(log, timeout=SECONDS)
    assert next(stream).offset == 2
    stream.cancel()

    assert isinstance(penstock.DeleteTopic(proto.DeleteTopicRequest(name="calls")), Empty)
    assert "calls" not in [each.name for each in penstock.ListTopics(Empty()).topics]


# WebSocket.


def ask(connection: ClientConnection, op: str, **fields: Any) -> dict[str, Any]:
    """In binary frames: messages are arrays of bytes."""
    connection.send(msgspec.msgpack.encode({"op": op, "id": 1, **fields}))
    reply: dict[str, Any] = msgspec.msgpack.decode(connection.recv(timeout=SECONDS, decode=False))
    assert reply["id"] == 1, reply
    return reply


def test_a_consumer_over_websocket_has_an_id_and_goes_on_behind_what_it_acknowledged(
    node: NodeProcess, curl: Curl
) -> None:
    curl.ask("POST", "/v1/topics", {"name": "frames", "partitions": 1}, 201)
    url = f"ws://{node.ready['http']}/v1/ws"

    with connect(url) as producer, connect(url) as consumer:
        producer.recv()
        welcome = json.loads(consumer.recv())
        for number in range(3):
            enqueued = ask(producer, "enqueue", topic="frames", message={"value": b"\xff%d" % number})
            assert enqueued["results"][0]["offset"] == number
        first = ask(consumer, "dequeue", topic="frames", max=1, wait_ms=20_000)["messages"]
        settled = ask(consumer, "ack", receipts=[each["receipt"] for each in first])
        unsettled = ask(consumer, "dequeue", topic="frames", max=1, wait_ms=20_000)["messages"]
    with connect(f"{url}?consumer={welcome['consumer']}") as consumer, connect(url) as other:
        back, stranger = json.loads(consumer.recv()), json.loads(other.recv())
        rest = ask(consumer, "dequeue", topic="frames", max=10, wait_ms=20_000)["messages"]

    assert [each["value"] for each in first + unsettled] == [b"\xff0", b"\xff1"]
    assert settled["settled"] == 1
    assert back["consumer"] == welcome["consumer"] != stranger["consumer"]
    assert [each["value"] for each in rest] == [b"\xff1", b"\xff2"]


# Variables and the file.

VARIABLES = """
PENSTOCK_NODE_ID=node-1
PENSTOCK_DATA_DIR=/var/lib/penstock
PENSTOCK_HTTP_ADDR=:8080
PENSTOCK_GRPC_ADDR=:9000
PENSTOCK_METRICS_ADDR=:9090
PENSTOCK_LOG_LEVEL=info
PENSTOCK_LOG_FORMAT=json
"""
FILE = """
node:
  id: ${PENSTOCK_NODE_ID:node-1}
  data_dir: ${PENSTOCK_DATA_DIR:/var/lib/penstock}
listen: {http: ":8080", grpc: ":9000", peer: ":7000", metrics: ":9090"}
storage:
  segment_bytes: 1073741824
  index_interval_bytes: 4096
  time_index_interval_ms: 1000
  fsync: {mode: interval, interval_ms: 1000}
topics: {partitions: 6, replication_factor: 1, retention_hours: 168, retention_bytes: -1}
delivery: {visibility_timeout_ms: 30000, retries_max: 3, dead_letter: true}
groups: {session_timeout_ms: 30000, heartbeat_interval_ms: 10000, poll_records_max: 500}
client: {batch_bytes: 16384, linger_ms: 5, acks: leader}
metrics: {enabled: true}
logging: {level: info, format: json}
"""


def variables() -> dict[str, str]:
    return dict(line.split("=", 1) for line in VARIABLES.split())


def settings(directory: Path, given: Mapping[str, str], *options: str) -> dict[str, Any]:
    """What is in force with these variables, by `penstock config show`."""
    command = [sys.executable, "-m", "penstock.cli", "config", "show", "--json", *options]
    others = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    ended = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=directory, env={**others, **given}
    )
    assert ended.returncode == 0, ended.stderr
    return {key: row["value"] for key, row in json.loads(ended.stdout).items()}


def test_every_variable_is_read(tmp_path: Path) -> None:
    found = settings(tmp_path, variables())

    assert (found["node.id"], found["node.data_dir"]) == (1, "/var/lib/penstock")
    addresses = [found[f"listen.{name}"] for name in ("http", "grpc", "metrics")]
    assert addresses == [":8080", ":9000", ":9090"]
    assert (found["logging.level"], found["logging.format"]) == ("info", "json")


def test_every_key_of_the_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(FILE)

    found = settings(tmp_path, {"PENSTOCK_DATA_DIR": "/data"}, "--config", "config.yaml")

    written = dict(flat("", yaml.safe_load(FILE)))
    written |= {"node.id": 1, "node.data_dir": "/data"}
    assert {key: found[key] for key in written} == written


def flat(prefix: str, section: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in section.items():
        if isinstance(value, dict):
            yield from flat(f"{prefix}{name}.", value)
        else:
            yield f"{prefix}{name}", value


def test_a_node_starts_with_nothing_but_the_variables(tmp_path: Path) -> None:
    given = variables() | {"PENSTOCK_DATA_DIR": str(tmp_path / "data"), "PENSTOCK_NODE_ID": "node-7"}
    # Not on every interface, and not where another node may be.
    given |= dict.fromkeys(
        [f"PENSTOCK_{name}_ADDR" for name in ("KAFKA", "HTTP", "GRPC", "METRICS", "PEER")], "127.0.0.1:0"
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock.cli", "up", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={**os.environ, **given},
    )
    try:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        curl = Curl(f"http://{ready['http']}")
        until(lambda: curl(f"curl {WRITTEN}/health").status == 200, "the gateway")
        cluster = curl.ask("GET", "/v1/admin/cluster")
        metrics = Curl(f"http://{ready['metrics']}")(f"curl {WRITTEN}/metrics")
    finally:
        process.terminate()
        events = process.communicate(timeout=SECONDS)[1]

    assert [each["id"] for each in cluster["brokers"]] == [7]
    assert "penstock_nodes" in metrics.text
    assert (tmp_path / "data").is_dir()
    assert all(json.loads(line)["level"] != "debug" for line in events.splitlines())
