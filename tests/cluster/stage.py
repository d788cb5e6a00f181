"""A cluster under load: what every scenario with faults needs before it begins and at its end."""

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.sim.checkers.log import check_log
from tests.cluster.load import QUIET, Load
from tests.cluster.readers import GroupReaders, read_everything
from tests.support.clusters import ClusterProcesses, cluster_of, until
from tests.support.network import Network

TOPIC = "watched"
PARTITIONS = 3
CATCH_UP_SECONDS = 60.0
# Fewer partitions to look after than by default, so that two cores are enough for the rest.
SETTINGS = ("groups.offsets_partitions=3", "groups.initial_rebalance_delay_ms=0")


@dataclass
class Verdict:
    """What a run showed."""

    sent: int = 0
    acknowledged: int = 0
    read: int = 0
    failed: list[str] = field(default_factory=list)
    anomalies: list[str] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        return not self.anomalies and not self.failed and self.sent > 0


class Stage:
    """Producers and a group at work on a topic with three replicas, two of which must have a record."""

    def __init__(self, cluster: ClusterProcesses, rate: int) -> None:
        self.cluster = cluster
        create_topic(cluster, TOPIC, PARTITIONS)
        self.await_in_sync()
        login = cluster.login
        self.load = Load(cluster.bootstrap, TOPIC, PARTITIONS, rate, login=login).start()
        self.readers = GroupReaders(cluster.bootstrap, TOPIC, self.load.histories, login=login).start()
        self.verdict = Verdict()

    def await_in_sync(self) -> None:
        self.cluster.await_in_sync(TOPIC)

    def led_by(self, number: int) -> list[int]:
        """The partitions that a node leads."""
        found = self.cluster.partitions(TOPIC)
        return [index for index, partition in found.items() if partition.leader_id == number]

    def outage(self, since: int, partitions: Sequence[int], seconds: float = 60.0) -> float:
        """The longest of these partitions' waits for the next accepted write."""
        waits = [self.load.accepted_since(since, partition, seconds) for partition in partitions]
        known = [wait for wait in waits if wait is not None]
        if len(known) < len(waits):
            self.verdict.anomalies.append(f"no write was accepted within {seconds:g} s")
        return max(known, default=seconds)

    def finish(self) -> Verdict:
        """End the load, let the group catch up, and judge what is there."""
        verdict = self.verdict
        verdict.anomalies += self.load.finish()
        verdict.anomalies += self.readers.await_all_read(CATCH_UP_SECONDS)
        self.readers.finish()
        verdict.sent, verdict.acknowledged = self.load.account.sent, self.load.account.acknowledged
        verdict.read, verdict.failed = self.readers.read, self.load.account.failed
        everything = read_everything(self.cluster.bootstrap, TOPIC, PARTITIONS, self.cluster.login)
        for partition, rows in everything.items():
            verdict.anomalies += check_log(self.load.histories[partition], rows)
            there = {value for _, value in rows}
            lost = [value for value in self.load.somewhere[partition] if value not in there]
            verdict.anomalies += [f"lost: {value!r} was acknowledged with a later one" for value in lost]
        return verdict

    def abandon(self) -> None:
        """End the threads after a failure, whatever state they are in."""
        self.load.abandon()
        self.readers.finish()


def create_topic(cluster: ClusterProcesses, topic: str, partitions: int) -> None:
    """Again, if the controller changes just then."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **QUIET, **cluster.login})

    def is_there() -> bool:
        wanted = NewTopic(topic, partitions, 3, config={"min.insync.replicas": "2"})
        try:
            admin.create_topics([wanted], request_timeout=5)[topic].result(timeout=20)
        except KafkaException as error:
            code = error.args[0].code()
            if code not in (
                KafkaError.TOPIC_ALREADY_EXISTS,
                KafkaError.NOT_CONTROLLER,
                KafkaError._TIMED_OUT,
            ):
                raise
            return bool(code == KafkaError.TOPIC_ALREADY_EXISTS)
        return True

    until(is_there, f"{topic} is created")


@contextlib.contextmanager
def stage(root: Path, *settings: str, rate: int = 600, network: Network | None = None) -> Iterator[Stage]:
    """Three nodes with a load on them."""
    with cluster_of(root, *SETTINGS, *settings, network=network) as cluster, stage_on(cluster, rate) as on:
        yield on


@contextlib.contextmanager
def stage_on(cluster: ClusterProcesses, rate: int = 600) -> Iterator[Stage]:
    """A load on nodes that run already."""
    on = Stage(cluster, rate)
    try:
        on.load.await_acknowledged(rate // 4)
        yield on
    except BaseException:
        cluster.close()
        on.abandon()
        raise


def moment() -> int:
    """Now, on the clock that the load writes into its values."""
    return time.monotonic_ns()
