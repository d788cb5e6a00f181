"""One topic for everybody at once, while nodes, gateways and workers are killed.

    python -m tests.cluster.one_topic --nodes 3 --kills 50 [--seed N] [--plant FAULT]

Kafka producers write to a topic, and clients of REST and gRPC publish to it. A consumer group reads it as a
log. At the same time it is the work queue of six groups: two share groups, one of them of librdkafka's share
consumer, workers over REST, over gRPC, over WebSocket, and one group that has workers of these three. Nodes
are killed with SIGKILL and started again on their data, and sometimes only a node's gateway is; some workers
go away for good with records that they have.

At the end the log is judged by `sim.checkers.log` and the queues by `sim.checkers.queues`: every acknowledged
record is in the log, the consumer group has read it in its order, and every queue group has finished it once;
nobody got what was never sent, what somebody else had, or what was finished. And every queue is empty.

With `--plant` every node has one of the faults of `tests.simulation.cluster.planted_queues`, to be found.
"""

import argparse
import base64
import contextlib
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import grpc
import httpx
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.client import Endpoint
from penstock.client.endpoint import ClientError
from penstock.client.queues import describe_queues
from penstock.core.metadata.topic_names import QUEUES_TOPIC
from penstock.sim.checkers.log import LogHistory, check_log
from penstock.sim.checkers.queues import QueuePolicy
from penstock.v1 import penstock_pb2 as proto
from penstock.v1.penstock_pb2_grpc import PenstockStub
from tests.cluster import planted_node
from tests.cluster.load import QUIET, Load
from tests.cluster.queue_journal import QueueJournal
from tests.cluster.queue_workers import (
    GrpcWorker,
    LibrdkafkaShareWorker,
    NodeAddresses,
    QueueWorker,
    RestWorker,
    ShareWorker,
    WebSocketWorker,
)
from tests.cluster.readers import GroupReaders, read_everything
from tests.support.clusters import ClusterProcesses, until

TOPIC, PARTITIONS = "everything", 3
RATE = 45
PUBLISH_SECONDS = 0.1
LEASE_MS = 4_000
# Of those that go away: so long that a node is killed and has started again before they end.
DESERTED_MS = 10_000
RETRIES_MAX = 99
# Records that a worker has had when it goes away for good.
DESERTS_AFTER = 5
# What every group has to finish between two faults, so that each of them hits workers at work.
STEP = 25
SECONDS_MAX = 90.0
SETTINGS = (
    "rest.enabled=true",
    "groups.offsets_partitions=3",
    "groups.initial_rebalance_delay_ms=0",
    f"delivery.visibility_timeout_ms={LEASE_MS}",
    f"delivery.retries_max={RETRIES_MAX}",
)
POLICY = QueuePolicy(RETRIES_MAX + 1, is_key_ordered=False, backoff_ms=1_000, backoff_ms_max=60_000)
GROUPS: dict[str, tuple[type[QueueWorker], ...]] = {
    "shared": (ShareWorker, ShareWorker),
    "librdkafka": (LibrdkafkaShareWorker, LibrdkafkaShareWorker),
    "rest": (RestWorker, RestWorker),
    "grpc": (GrpcWorker, GrpcWorker),
    "websocket": (WebSocketWorker, WebSocketWorker),
    "mixed": (RestWorker, GrpcWorker, WebSocketWorker),
}


@dataclass
class Verdict:
    """What a run showed."""

    kills: Counter[str] = field(default_factory=Counter)
    sent: int = 0
    acknowledged: int = 0
    read: int = 0
    finished: Counter[str] = field(default_factory=Counter)
    delivered: Counter[str] = field(default_factory=Counter)
    interruptions: int = 0
    # Records that workers had when they went away for good.
    deserted: int = 0
    redeliveries: int = 0
    anomalies: list[str] = field(default_factory=list)


class Publisher:
    """Publishes values one by one through a gateway, from a thread of its own; subclasses say how.

    What has no response may or may not be in the log. It is not sent again.
    """

    def __init__(self, name: str, nodes: Sequence[NodeAddresses], histories: dict[int, LogHistory]) -> None:
        self._name, self._nodes, self._histories = name, nodes, histories
        self.sent = self.acknowledged = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"publisher-{name}")

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(PUBLISH_SECONDS):
            number, self.sent = self.sent, self.sent + 1
            partition = number % PARTITIONS
            value = b"%s/%d/%d" % (self._name.encode(), number, time.monotonic_ns())
            history = self._histories[partition]
            # Two gateways may have one of them each, when the first is about to end.
            history.sent_in_any_order.append(value)
            offset = self.publish(self._nodes[number % len(self._nodes)], partition, value)
            if offset is not None:
                history.acknowledged[value] = offset
                self.acknowledged += 1

    def publish(self, node: NodeAddresses, partition: int, value: bytes) -> int | None:
        """Where it is stored; None if that is not known."""
        raise NotImplementedError


class RestPublisher(Publisher):
    def publish(self, node: NodeAddresses, partition: int, value: bytes) -> int | None:
        body = {"value_base64": base64.b64encode(value).decode(), "partition": partition}
        try:
            answer = httpx.post(f"{node.http}/v1/topics/{TOPIC}/publish", json=body, timeout=10)
        except httpx.HTTPError:
            return None
        return int(answer.json()["offset"]) if answer.is_success else None


class GrpcPublisher(Publisher):
    def publish(self, node: NodeAddresses, partition: int, value: bytes) -> int | None:
        request = proto.PublishRequest(topic=TOPIC, partition=partition, value=value)
        with grpc.insecure_channel(node.grpc, (("grpc.use_local_subchannel_pool", 1),)) as channel:
            try:
                return int(PenstockStub(channel).Publish(request, timeout=10).offset)  # type: ignore[no-untyped-call]
            except grpc.RpcError:
                return None


class OneTopic:
    """Everybody at work on the topic of a cluster."""

    def __init__(self, cluster: ClusterProcesses, progress: Callable[[str], None]) -> None:
        self.cluster = cluster
        self.progress = progress
        self.verdict = Verdict()
        self.journal = QueueJournal(TOPIC)
        self._create_topic()
        nodes = [addresses(cluster, number) for number in cluster.nodes]
        self.load = Load(cluster.bootstrap, TOPIC, PARTITIONS, RATE, writers=2)
        self.readers = GroupReaders(cluster.bootstrap, TOPIC, self.load.histories, checks_order=True)
        self.publishers = [
            RestPublisher("rest", nodes, self.load.histories),
            GrpcPublisher("grpc", nodes, self.load.histories),
        ]
        self.workers = [
            kind(f"{group}-{number}", group, self.journal, nodes, LEASE_MS)
            for group, kinds in GROUPS.items()
            for number, kind in enumerate(kinds)
        ]
        self.deserters = [
            kinds[-1](
                f"{group}-deserter",
                group,
                self.journal,
                nodes,
                LEASE_MS if kinds[-1] is ShareWorker else DESERTED_MS,
            ).deserting_after(DESERTS_AFTER)
            for group, kinds in GROUPS.items()
            if kinds[-1] is not LibrdkafkaShareWorker
        ]

    def _create_topic(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap, **QUIET})
        replicas = len(self.cluster.nodes)
        wanted = NewTopic(TOPIC, PARTITIONS, replicas, config={"min.insync.replicas": str(min(2, replicas))})

        def is_there() -> bool:
            try:
                admin.create_topics([wanted], request_timeout=5)[TOPIC].result(timeout=20)
            except KafkaException as error:
                return bool(error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS)
            return True

        until(is_there, f"{TOPIC} is created")
        self.cluster.await_in_sync(TOPIC)

    def start(self) -> None:
        self.load.start()
        self.readers.start()
        for publisher in self.publishers:
            publisher.start()
        for worker in self.workers:
            worker.start()

    def end(self) -> None:
        """End all threads, whatever state they are in."""
        self.journal.ended.set()
        for worker in (*self.workers, *self.deserters):
            worker.stop()
        for publisher in self.publishers:
            publisher.finish()
        self.load.abandon()
        self.readers.finish()

    def await_work(self, step: int = STEP) -> None:
        """Wait until every group has finished some more, and the consumer group has read on."""
        goals = {group: self.journal.finished[group] + step for group in GROUPS}
        read = self.readers.read + step
        assert self.journal.wait_for(
            lambda: all(self.journal.finished[group] >= goal for group, goal in goals.items()), SECONDS_MAX
        ), f"{self.journal.finished} is not {goals}: {[self._queues(group) for group in GROUPS]}"
        until(lambda: self.readers.read >= read, "the consumer group reads on", SECONDS_MAX)

    def desert(self) -> None:
        """Have a worker of each group go away with what it has."""
        for each in self.deserters:
            each.start()
        for each in self.deserters:
            each.join()

    def kill_node(self, number: int) -> None:
        self.verdict.kills["node"] += 1
        node = self.cluster.nodes[number]
        node.kill()
        if len(self.cluster.nodes) > 1:
            # The others can do without it.
            self.await_work()
        node.start()
        if len(self.cluster.nodes) > 1:
            # Two of three must have what is acknowledged: the next may be killed when all have it.
            for topic in (TOPIC, QUEUES_TOPIC):
                self.cluster.await_in_sync(topic, SECONDS_MAX)

    def kill_gateway(self, number: int) -> None:
        """The node goes on, and starts another."""
        self.verdict.kills["gateway"] += 1
        node = self.cluster.nodes[number]
        (gateway,) = node.gateways()
        os.kill(gateway, signal.SIGKILL)
        until(lambda: node.gateways() not in ([], [gateway]), "another gateway runs")

    def finish(self) -> Verdict:
        """Send no more, let everybody come to the end, and judge what they saw."""
        verdict, load, journal = self.verdict, self.load, self.journal
        for publisher in self.publishers:
            publisher.finish()
        verdict.anomalies += [*load.finish(), *load.account.failed]
        self.progress("all is sent")
        verdict.anomalies += self.readers.await_all_read(SECONDS_MAX)
        self.progress("all is read")
        journal.draining.set()
        for worker in self.workers:
            # A stream that has nothing more to say must not keep what it has.
            worker.interrupt()
        rows = read_everything(self.cluster.bootstrap, TOPIC, PARTITIONS)
        ends = {partition: len(found) for partition, found in rows.items()}
        for group in GROUPS:
            try:
                until(partial(self._is_finished, group, ends), f"{group} has finished all", SECONDS_MAX)
                self.progress(f"{group} has finished all")
            except AssertionError:
                verdict.anomalies.append(f"left over: {group}: {self._queues(group)}")
        self.end()
        self.progress("all have ended")
        verdict.anomalies += check_histories(load, rows)
        sent = {partition: sent_to(history) for partition, history in load.histories.items()}
        verdict.anomalies += journal.check(sent, rows, POLICY)
        verdict.sent = load.account.sent + sum(each.sent for each in self.publishers)
        verdict.acknowledged = load.account.acknowledged + sum(each.acknowledged for each in self.publishers)
        verdict.read, verdict.redeliveries = self.readers.read, journal.checker.redeliveries
        verdict.finished, verdict.delivered = journal.finished, journal.delivered
        verdict.interruptions = journal.interruptions.total()
        verdict.deserted = sum(len(each.held) for each in self.deserters)
        return verdict

    def _is_finished(self, group: str, ends: dict[int, int]) -> bool:
        found = self._queues(group)
        return len(found) == PARTITIONS and all(
            each["finished_below"] == ends[each["partition"]]
            and not each["ready"] + each["leased"] + each["delayed"] + each["moving"]
            for each in found
        )

    def _queues(self, group: str) -> list[dict[str, int]]:
        """What `penstock queue describe` shows."""
        shown = ("partition", "end", "finished_below", "ready", "leased", "delayed", "moving")
        with contextlib.suppress(ClientError):
            found = describe_queues(Endpoint(self.cluster.bootstrap), (group,), (TOPIC,))
            return [{name: getattr(each, name) for name in shown} for each in found]
        return []


def addresses(cluster: ClusterProcesses, number: int) -> NodeAddresses:
    http, rpc = cluster.listener(number, "http"), cluster.listener(number, "grpc")
    return NodeAddresses(cluster.address(number), f"http://{http}", str(rpc))


def ignore(_what: str) -> None:
    pass


def sent_to(history: LogHistory) -> list[bytes]:
    return [*history.sent_in_any_order, *(value for values in history.sent.values() for value in values)]


def check_histories(load: Load, rows: dict[int, list[tuple[int, bytes]]]) -> Iterator[str]:
    for partition, found in rows.items():
        yield from check_log(load.histories[partition], found)
        there = dict.fromkeys(value for _, value in found)
        for value in load.somewhere[partition]:
            if value not in there:
                yield f"lost: {value!r} was acknowledged with a later one"


def run(
    root: Path,
    nodes: int,
    faults: Sequence[str],
    wrapper: Sequence[str] = (),
    progress: Callable[[str], None] = ignore,
) -> Verdict:
    """Let the faults happen one after the other: `leader`, `controller`, `any`, or `gateway` of a node."""
    luck = random.Random(",".join(faults))
    choices: dict[str, Callable[[ClusterProcesses], int]] = {
        "leader": lambda cluster: cluster.leader_of(TOPIC),
        "controller": lambda cluster: cluster.controller(),
        "any": lambda cluster: luck.choice(cluster.running),
    }
    with contextlib.closing(ClusterProcesses(root, *SETTINGS, count=nodes)) as cluster:
        for node in cluster.nodes.values():
            node.wrapper = wrapper
        on = OneTopic(cluster.start(), progress)
        try:
            on.start()
            on.await_work()
            on.desert()
            for fault in faults:
                if fault == "gateway":
                    on.kill_gateway(luck.choice(cluster.running))
                else:
                    on.kill_node(choices[fault](cluster))
                progress(f"{fault} is back")
                on.await_work()
                progress("all work")
            return on.finish()
        finally:
            on.end()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--plant", choices=[fault.__name__ for fault in planted_node.FAULTS])
    given = parser.parse_args()
    luck = random.Random(given.seed)
    faults = luck.choices(("leader", "controller", "any", "gateway"), (3, 1, 2, 2), k=given.kills)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="penstock-one-topic-") as root:
        wrapper = () if given.plant is None else planted_node.wrapper(given.plant)
        verdict = run(
            Path(root),
            given.nodes,
            faults,
            wrapper,
            lambda what: print(f"{time.monotonic() - began:5.1f} s  {what}", flush=True),
        )
    print(
        f"{dict(verdict.kills)} killed in {time.monotonic() - began:.0f} s; {verdict.acknowledged} of "
        f"{verdict.sent} records acknowledged, {verdict.read} read by the consumer group; workers lost their "
        f"server {verdict.interruptions} times; {verdict.delivered.total()} deliveries, "
        f"{verdict.redeliveries} of them not the first"
    )
    print(f"finished by {dict(verdict.finished)}")
    print("\n".join(verdict.anomalies[:20] or ["nothing lost, shared wrongly, or delivered after its end"]))
    return 1 if verdict.anomalies else 0


if __name__ == "__main__":
    sys.exit(main())
