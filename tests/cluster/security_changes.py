"""What a secured cluster is asked to change while clients work, with kill -9 of a node in the middle.

    python -m tests.cluster.security_changes --rounds 10 [--seed N]

Three nodes speak TLS with each other and with clients, who log in. Idempotent producers and a group
(librdkafka), and one more producer (kafka-python), work as a user whose rights stay. In each round, one
after the other:

    certificates   every node gets a new one
    a password     of a user changes
    a rule         of a reader is taken back, while it reads
    a master key   takes the place of another, and old segments are encrypted again

and a node, not the one that is asked for the change, is killed before, while or right after it is made, and
started again. At the end nothing that was acknowledged may be lost, and nobody may have been refused who had
the right. What was taken back counts everywhere from the moment when that is acknowledged: whatever is
written from then on, the reader never sees, whichever node it asks and on whichever connection. An old master
key is removed in the round in which it was replaced; at the end all nodes are killed, started and read again.
"""

import argparse
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import kafka
import kafka.cluster
import kafka.errors
from confluent_kafka import Consumer, KafkaError, TopicPartition

from penstock.client.access import AccessAdmin
from penstock.client.connection import BrokerConnection, connect
from penstock.client.endpoint import ClientError
from penstock.client.master_keys import MasterKeyClient, MasterKeyStatus
from penstock.core.metadata.access import AclFilter, AclOperation
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic
from penstock.core.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.core.protocol.messages.produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
)
from penstock.core.records import Record, write_batch
from penstock.sim.checkers.log import LogHistory, check_log
from tests.cluster.load import QUIET
from tests.cluster.readers import read_everything
from tests.cluster.secured import ADMIN, RECOVERY_SECONDS, WORKER, SecuredCluster, allow
from tests.cluster.stage import PARTITIONS, TOPIC, create_topic, moment, stage_on
from tests.support.clusters import until

# Written by kafka-python; its name lets the worker use it.
OTHER_TOPIC = "watched-too"
SECRET_TOPIC = "secrets"
READER, ROTATED = "reader", "rotated"
RATE = 150
PYTHON_PAUSE_SECONDS = 0.02
CHANGE_SECONDS = 60.0


@dataclass
class Outcome:
    """What the rounds showed."""

    rounds: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    acknowledged: int = 0
    acknowledged_by_python: int = 0
    secrets_read: int = 0
    # That the consumer of librdkafka was told of.
    refusals: int = 0
    certificates: int = 0
    passwords: int = 0
    revocations: int = 0
    rotations: int = 0
    keys_removed: int = 0
    anomalies: list[str] = field(default_factory=list)


class LastingMetadata(kafka.cluster.ClusterMetadata):  # type: ignore[misc]
    """kafka-python's metadata, refreshed for as long as the client is there.

    In 3.0 its loop ends for good when a refresh fails that somebody else has begun, as happens when a node is
    killed; the producer sends to a former leader from then on.
    """

    async def _refresh_loop(self) -> None:
        while not self.closed:
            with suppress(kafka.errors.KafkaError):
                await super()._refresh_loop()


class PythonProducer:
    """A producer of kafka-python that goes on, whatever happens, and knows what was acknowledged."""

    def __init__(self, cluster: SecuredCluster) -> None:
        self.history = LogHistory()
        self.failed: list[str] = []
        self._ended = threading.Event()
        with patch("kafka.net.manager.ClusterMetadata", LastingMetadata):
            self._producer = kafka.KafkaProducer(
                **python_login(cluster, WORKER),
                acks="all",
                enable_idempotence=True,
                delivery_timeout_ms=120_000,
                request_timeout_ms=10_000,
            )
        self._thread = threading.Thread(target=self._run, name="kafka-python", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        sent: list[bytes] = self.history.sent.setdefault("python", [])
        while not self._ended.wait(PYTHON_PAUSE_SECONDS):
            value = b"python/%d/%d" % (len(sent), moment())
            sent.append(value)
            future = self._producer.send(OTHER_TOPIC, value, partition=0)
            future.add_callback(self._delivered, value)
            future.add_errback(lambda error: self.failed.append(repr(error)))

    def _delivered(self, value: bytes, about: Any) -> None:
        self.history.acknowledged[value] = about.offset

    def finish(self) -> None:
        self._ended.set()
        self._thread.join()
        self._producer.flush(120)
        self._producer.close(10)


def python_login(cluster: SecuredCluster, user: str) -> dict[str, Any]:
    return {
        "bootstrap_servers": cluster.bootstrap.split(","),
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": user,
        "sasl_plain_password": f"{user}-password",
        "ssl_cafile": str(cluster.certificates / "ca.pem"),
    }


class SecretReader:
    """A consumer of librdkafka that reads all it is given of a topic, and keeps asking when it is refused."""

    def __init__(self, cluster: SecuredCluster) -> None:
        self.values: list[bytes] = []
        self.refusals = 0
        self._ended = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": "unused",
                "enable.auto.commit": False,
                # A fetch that waits is answered only when there is something to read.
                "fetch.wait.max.ms": 20_000,
                "topic.metadata.refresh.interval.ms": 1_000,
                "reconnect.backoff.max.ms": 200,
                **cluster.login_of(READER),
                **QUIET,
            }
        )
        self._consumer.assign([TopicPartition(SECRET_TOPIC, 0, 0)])
        self._thread = threading.Thread(target=self._run, name="reader", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.is_set():
            message = self._consumer.poll(0.1)
            if message is None:
                continue
            error = message.error()
            if error is None:
                self.values.append(message.value() or b"")
            elif error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                self.refusals += 1
        self._consumer.close()

    def finish(self) -> None:
        self._ended.set()
        self._thread.join()


class SecretWriter:
    """Writes secrets as the administrator, on a connection to the leader that it makes beforehand."""

    def __init__(self, cluster: SecuredCluster) -> None:
        self._cluster = cluster
        self._connection: BrokerConnection | None = None
        until(self._connect, "the leader can be asked", RECOVERY_SECONDS)

    def __enter__(self) -> "SecretWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self._disconnect()

    def write(self, value: bytes) -> bytes:
        """Write it; when this returns, it is acknowledged."""
        content = bytes(write_batch([Record(0, 0, None, value)]))
        until(lambda: self._is_written(content), "a secret is written", RECOVERY_SECONDS)
        return value

    def _connect(self) -> bool:
        self._disconnect()
        leader = self._cluster.leader_of(SECRET_TOPIC)
        about = MetadataRequest(topics=(MetadataRequestTopic(name=SECRET_TOPIC),))
        try:
            self._connection = connect(self._cluster.endpoint(leader, ADMIN))
            self._topic_id = self._connection.ask(about).topics[0].topic_id
        except ClientError:
            return False
        return True

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _is_written(self, content: bytes) -> bool:
        if self._connection is None and not self._connect():
            return False
        assert self._connection is not None
        batch = ProduceRequestPartition(index=0, records=content)
        topic = ProduceRequestTopic(topic_id=self._topic_id, name=SECRET_TOPIC, partition_data=(batch,))
        request = ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=(topic,))
        try:
            row = self._connection.ask(request).responses[0].partition_responses[0]
        except ClientError:
            self._disconnect()
            return False
        if row.error_code != ErrorCode.NONE:
            self._disconnect()
            return False
        return True


class SecurityChanges:
    """Rounds of changes on one cluster, and what they show."""

    def __init__(self, cluster: SecuredCluster, luck: random.Random, outcome: Outcome) -> None:
        self._cluster = cluster
        self._luck = luck
        self._outcome = outcome
        self._written = 0
        self._passwords = 0

    def prepare(self) -> None:
        """A user whose password will change, a reader, and what it reads."""
        admin = self._cluster.admin(1)
        for user in (READER, ROTATED):
            admin.set_password(user, f"{user}-password")
        self._password = f"{ROTATED}-password"
        admin.create_acls([allow(WORKER, SECRET_TOPIC, AclOperation.CREATE)])
        until(lambda: len(self._cluster.rules(1, WORKER)) == 6, "the worker may create the topic")
        create_topic(self._cluster, OTHER_TOPIC, 1)
        create_topic(self._cluster, SECRET_TOPIC, 1)
        cluster = self._cluster
        cluster.await_everywhere(lambda number: cluster.can_log_in(number, READER), "knows the reader")

    def run(self, await_in_sync: Callable[[], None]) -> None:
        """One round."""
        changes = (
            self._replace_certificates,
            self._change_password,
            self._revoke_rule,
            self._rotate_master_key,
        )
        for change in changes:
            await_in_sync()
            for topic in (OTHER_TOPIC, SECRET_TOPIC):
                self._cluster.await_in_sync(topic, RECOVERY_SECONDS)
            change()
        self._outcome.rounds += 1

    def _with_a_kill(self, name: str, change: Callable[[], None]) -> tuple[int, int]:
        """Make a change at one node while another is killed; returns both. Whoever asks starts it again."""
        asked, victim = self._luck.sample(list(self._cluster.nodes), 2)
        self._asked = asked
        when = self._luck.choice(("before", "during", "after"))
        self._outcome.kills[f"{name}, {when}"] += 1
        node = self._cluster.nodes[victim]
        if when == "before":
            node.kill()
            change()
        elif when == "during":
            killer = threading.Timer(self._luck.random() * 0.02, node.kill)
            killer.start()
            change()
            killer.join()
        else:
            change()
            node.kill()
        return asked, victim

    def _until_acknowledged(self, act: Callable[[AccessAdmin], object]) -> None:
        """Ask one node until it acknowledges: the controller may be the one that is gone."""

        def acknowledged() -> bool:
            try:
                act(self._cluster.admin(self._asked))
            except ClientError:
                return False
            return True

        until(acknowledged, "the change is acknowledged", CHANGE_SECONDS)

    def _replace_certificates(self) -> None:
        cluster = self._cluster
        before = {number: cluster.shown_certificate(number) for number in cluster.nodes}
        kept = {number: connect(cluster.endpoint(number, WORKER)) for number in cluster.nodes}

        def renew() -> None:
            for number in cluster.nodes:
                cluster.renew(number)

        _, victim = self._with_a_kill("certificates", renew)
        cluster.nodes[victim].start()
        cluster.await_everywhere(
            lambda number: cluster.shown_certificate(number) != before[number], "shows its new certificate"
        )
        for number, connection in kept.items():
            with closing(connection):
                if number != victim and not connection.ask(MetadataRequest(topics=())).brokers:
                    self._note(f"a connection to node {number} did not survive a new certificate")
        self._outcome.certificates += len(cluster.nodes)

    def _change_password(self) -> None:
        cluster, before = self._cluster, self._password
        self._passwords += 1
        after = f"{ROTATED}-password-{self._passwords}"

        def change() -> None:
            self._until_acknowledged(lambda admin: admin.set_password(ROTATED, after))
            if cluster.can_log_in(self._asked, ROTATED, before):
                self._note(f"node {self._asked} took a password after it had acknowledged another")
            if not cluster.can_log_in(self._asked, ROTATED, after):
                self._note(f"node {self._asked} refused the password that it had acknowledged")

        _, victim = self._with_a_kill("password", change)
        cluster.nodes[victim].start()
        self._password = after
        cluster.await_everywhere(
            lambda number: cluster.can_log_in(number, ROTATED, after), "knows the new password"
        )
        for number in cluster.nodes:
            if cluster.can_log_in(number, ROTATED, before):
                self._note(f"node {number} takes both passwords")
        self._outcome.passwords += 1

    def _revoke_rule(self) -> None:
        cluster = self._cluster
        rule = allow(READER, SECRET_TOPIC, AclOperation.READ)
        cluster.admin(1).create_acls([rule])
        cluster.await_everywhere(lambda number: cluster.rules(number, READER) == [rule], "has the rule")
        reader = SecretReader(cluster)
        try:
            shown = self._write_secret("allowed")
            until(lambda: shown in reader.values, "the reader reads", RECOVERY_SECONDS)
            hidden = self._revoke()
            # A consumer would be given them with its next fetch, which may be on its way.
            until(self._is_fetch_refused, "a fetch of the reader is refused", RECOVERY_SECONDS)
        finally:
            reader.finish()
        seen = [value for value in hidden if value in reader.values]
        if seen:
            self._note(f"the reader saw {seen}, which were written after the rule was gone")
        self._outcome.secrets_read += len(reader.values)
        self._outcome.refusals += reader.refusals
        self._outcome.revocations += 1

    def _revoke(self) -> list[bytes]:
        """Take the rule back, and write as soon as that is acknowledged; returns what was written."""
        cluster = self._cluster
        # They are logged in, and what the reader may was decided already.
        known = {number: connect(cluster.endpoint(number, READER)) for number in cluster.nodes}
        for number, connection in known.items():
            self._expect_refusal(f"node {number}, before the revocation,", connection, refused=False)
        hidden: list[bytes] = []

        def revoke() -> None:
            with SecretWriter(cluster) as writer:
                self._until_acknowledged(
                    lambda admin: admin.delete_acls(AclFilter(principal=f"User:{READER}"))
                )
                # Without a moment in between, if its leader is still there.
                hidden.append(writer.write(self._next_secret("forbidden")))
            self._expect_refusal(f"node {self._asked}, which had acknowledged it,", known[self._asked])

        _, victim = self._with_a_kill("rule", revoke)
        for number, connection in known.items():
            if number != victim:
                self._expect_refusal(f"node {number}, when it was acknowledged,", connection)
        hidden.append(self._write_secret("forbidden"))
        cluster.nodes[victim].start()
        # The victim may know less than the others; it serves no records before it has heard of them.
        hidden.append(self._write_secret("forbidden"))
        cluster.await_everywhere(lambda number: not cluster.rules(number, READER), "has heard")
        for number, connection in known.items():
            with closing(connect(cluster.endpoint(number, READER))) as fresh:
                self._expect_refusal(f"node {number}, which had heard of it,", fresh)
            connection.close()
        return hidden

    def _is_fetch_refused(self) -> bool:
        """Whether the leader refuses the reader's fetch from the beginning; it never returns records."""
        cluster = self._cluster
        leader = cluster.leader_of(SECRET_TOPIC)
        partition = FetchRequestPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        with closing(connect(cluster.endpoint(leader, ADMIN))) as admin:
            about = MetadataRequest(topics=(MetadataRequestTopic(name=SECRET_TOPIC),))
            topic_id = admin.ask(about).topics[0].topic_id
        topic = FetchRequestTopic(topic_id=topic_id, partitions=(partition,))
        with closing(connect(cluster.endpoint(leader, READER))) as connection:
            answer = connection.ask(FetchRequest(max_wait_ms=500, min_bytes=1, topics=(topic,)))
            row = answer.responses[0].partitions[0]
            if row.records:
                self._note(f"node {leader} gave the reader {len(row.records)} bytes that it may not read")
        return bool(row.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    def _expect_refusal(self, who: str, connection: BrokerConnection, *, refused: bool = True) -> None:
        """The reader asks for a topic of which it may not know without the rule."""
        request = MetadataRequest(
            topics=(MetadataRequestTopic(name=SECRET_TOPIC),), allow_auto_topic_creation=False
        )
        code = connection.ask(request).topics[0].error_code
        if (code == ErrorCode.TOPIC_AUTHORIZATION_FAILED) is not refused:
            self._note(f"{who} returned {code} to the reader")

    def _next_secret(self, kind: str) -> bytes:
        self._written += 1
        return f"{kind} {self._written}".encode()

    def _write_secret(self, kind: str) -> bytes:
        """Write one as the administrator; when this returns, it is acknowledged."""
        with SecretWriter(self._cluster) as writer:
            return writer.write(self._next_secret(kind))

    def _rotate_master_key(self) -> None:
        """Another one for every node and for old segments; what no node needs then is removed."""
        cluster = self._cluster
        before = {one.node_id: one.key for one in until(self._idle, "every node shows its keys")}

        def rotate() -> None:
            self._rotate_each(number for number in cluster.nodes if cluster.nodes[number].is_running)

        _, victim = self._with_a_kill("master key", rotate)
        cluster.nodes[victim].start()
        # It may have been asked or not, and have done it or not; nodes may have different keys then.
        self._rotate_each([victim])
        found = until(self._idle, "every node has done with its old key", CHANGE_SECONDS)
        for one in found:
            if one.left_out or [use.key for use in one.needed] != [one.key]:
                self._note(f"node {one.node_id} needs {one.needed}, and has left out {one.left_out}")
            if one.key == before[one.node_id]:
                self._note(f"node {one.node_id} has the key that it had")
        for name in cluster.keyring.load().secrets.keys() - {one.key for one in found}:
            cluster.keyring.remove(name)
            self._outcome.keys_removed += 1
        self._outcome.rotations += 1

    def _rotate_each(self, numbers: Iterable[int]) -> None:
        """Ask for each of these nodes; one that is killed meanwhile is asked again when it is back."""
        cluster = self._cluster

        def is_rotated(number: int) -> bool:
            with suppress(ClientError):
                client = MasterKeyClient(cluster.endpoint(self._asked))
                if client.rotate(number, reseal=True).error is None:
                    return True
            return not cluster.nodes[number].is_running

        for number in numbers:
            until(partial(is_rotated, number), f"node {number} has another master key", CHANGE_SECONDS)

    def _idle(self) -> list[MasterKeyStatus] | None:
        """What every node says of its keys when none has anything left to do."""
        with suppress(ClientError):
            found = MasterKeyClient(self._cluster.endpoint(self._asked)).status()
            if len(found) == len(self._cluster.nodes) and all(one.is_idle for one in found):
                return found
        return None

    def _note(self, anomaly: str) -> None:
        self._outcome.anomalies.append(anomaly)


def run_changes(root: Path, rounds: int, seed: int, progress: Callable[[str], None]) -> Outcome:
    """A cluster, a load, so many rounds of changes, and what they show."""
    outcome = Outcome()
    cluster = SecuredCluster(root)
    try:
        cluster.start()
        with stage_on(cluster, RATE) as stage:
            changes = SecurityChanges(cluster, random.Random(seed), outcome)
            changes.prepare()
            python = PythonProducer(cluster)
            try:
                for number in range(1, rounds + 1):
                    changes.run(stage.await_in_sync)
                    since = moment()
                    stage.outage(since, range(3))
                    progress(f"round {number}: {dict(outcome.kills)}, {outcome.anomalies or 'no anomaly'}")
            except BaseException as error:
                # Before the clients are ended, which may take long with a cluster that does not work.
                progress(f"round {outcome.rounds + 1} did not end: {error!r}, {outcome}")
                raise
            finally:
                python.finish()
            verdict = stage.finish()
        outcome.acknowledged = verdict.acknowledged
        outcome.acknowledged_by_python = len(python.history.acknowledged)
        outcome.anomalies += verdict.anomalies + [f"failed: {each}" for each in verdict.failed]
        outcome.anomalies += [f"kafka-python failed: {each}" for each in python.failed]
        rows = read_everything(cluster.bootstrap, OTHER_TOPIC, 1, cluster.login)[0]
        # Nobody reads it meanwhile: what is there now is what counts.
        python.history.read.update(rows)
        outcome.anomalies += [f"{OTHER_TOPIC}: {each}" for each in check_log(python.history, rows)]
        outcome.anomalies += read_again(cluster, verdict.acknowledged)
        outcome.anomalies += [f"in clear: {name}" for name in files_in_clear(cluster)]
    finally:
        cluster.close()
    return outcome


def read_again(cluster: SecuredCluster, acknowledged: int) -> list[str]:
    """Kill and start every node with the keys that are left, and read all there is."""
    for node in cluster.nodes.values():
        node.kill()
    for node in cluster.nodes.values():
        node.launch()
    for node in cluster.nodes.values():
        node.await_ready()
    found = read_everything(cluster.bootstrap, TOPIC, PARTITIONS, cluster.login)
    count = sum(map(len, found.values()))
    return [f"{count} records are left of {acknowledged}"] if count < acknowledged else []


def files_in_clear(cluster: SecuredCluster) -> list[str]:
    """Files of nodes, which have been killed or run, in which something stands that was in a record."""
    written = (b"allowed ", b"forbidden ", b"python/")
    found = []
    for node in cluster.nodes.values():
        for path in node.data_dir.rglob("*"):
            # Some are deleted meanwhile.
            with suppress(FileNotFoundError, IsADirectoryError):
                content = path.read_bytes()
                found += [str(path) for each in written if each in content]
    return found


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.security_changes")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as root:
        outcome = run_changes(Path(root), options.rounds, options.seed, lambda line: print(line, flush=True))
    print(f"{time.monotonic() - began:.0f} s: {outcome}")
    return 1 if outcome.anomalies else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
