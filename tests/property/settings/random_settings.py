"""Random settings for a running cluster, with clients at work.

    python -m tests.property.settings.random_settings --draws 10000 --nodes 1 [--seed N]

Each draw changes settings of a topic, of brokers, of a group or of client metrics; or creates a topic with
settings. A value may be anything. It is accepted or refused with one error that names the key; after that the
node serves as before: the topic `ledger`, which has settings of its own for everything, takes every
record, and others take records or say why not. Every now and then all settings are removed again, which
must be possible, and then everything works; and nodes are started again, in the middle of whatever is set.

At the end the ledger holds what it took.

With `--poison` the values are stored unchecked, as another version might have stored them: then a topic whose
own value cannot be read may be offline after a restart, with KAFKA_STORAGE_ERROR, and nothing else.
"""

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import pytest

from penstock.client.connection import BrokerAddress
from penstock.client.coordinator import Deadline
from penstock.core.metadata import ConfigOperation, ConfigResourceType, decide_configs, decide_topics
from penstock.core.metadata.topic_names import (
    DELAYED_TOPIC,
    OFFSETS_TOPIC,
    QUEUES_TOPIC,
    TRANSACTIONS_TOPIC,
)
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsRequestConfig,
    AlterConfigsRequestResource,
)
from penstock.core.protocol.messages.create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestConfig,
    CreateTopicsRequestTopic,
)
from penstock.core.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsRequestTopic
from penstock.core.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsRequestResource,
)
from penstock.core.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestConfig,
    IncrementalAlterConfigsRequestResource,
)
from penstock.core.protocol.schema import ZERO_UUID
from penstock.node.options import AddressInUse
from penstock.testing import Broker, broker
from penstock.testing.brokers import BrokerNode
from tests.property.settings.cluster_traffic import ClusterTraffic
from tests.property.settings.drawn_changes import ChangeDrawer, DrawnChange, DrawnKey

PORT_TRIES, PORT_SECONDS = 60, 1.0
LEDGER, VICTIM, OTHER = "ledger", "victim", "other"
GROUP, SHARE, QUEUE, KEEPER = "readers", "sharers", "workers", "keeper"
# Own settings for all that a broker could say otherwise, and that could refuse or delete a record.
LEDGER_CONFIGS = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "max.message.bytes": str(1 << 20),
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": str(2**63 - 1),
    "message.timestamp.after.max.ms": str(2**63 - 1),
    "min.insync.replicas": "1",
}
_JOURNAL = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
_PRODUCER = {"compression.type": "producer"}
# What internal topics are created with.
INTERNAL_CONFIGS: dict[str, dict[str, str]] = {
    OFFSETS_TOPIC: {**_PRODUCER, "cleanup.policy": "compact", "segment.bytes": str(100 << 20)},
    TRANSACTIONS_TOPIC: {**_PRODUCER, "cleanup.policy": "compact"},
    QUEUES_TOPIC: {**_PRODUCER, **_JOURNAL, "segment.bytes": str(100 << 20)},
    DELAYED_TOPIC: {**_PRODUCER, **_JOURNAL, "max.message.bytes": str(2 << 20)},
}
# What a change of settings may be refused with, and what a use under strange settings may end with.
REFUSALS = (
    ErrorCode.INVALID_CONFIG,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.BROKER_ID_NOT_REGISTERED,
    ErrorCode.INVALID_TOPIC_EXCEPTION,
)
EXPLAINED = (
    ErrorCode.NONE,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.RECORD_LIST_TOO_LARGE,
    ErrorCode.INVALID_TIMESTAMP,
    ErrorCode.INVALID_RECORD,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT,
)
# What a use of a topic may end with besides, if its own settings were stored unchecked: a queue of a
# partition that is offline has no leader.
OFFLINE = (
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
)
# So long an offline partition is asked again: nothing changes until its topic is corrected.
OFFLINE_MS = 2_000
UNDER_REPLICATED = (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
CORRECTED_SECONDS = 30.0
# What the creation of a topic may be refused with: the second if every broker is drained, the third if
# brokers have as many replicas as max.broker.partitions allows.
NOT_CREATED = (
    ErrorCode.INVALID_CONFIG,
    ErrorCode.INVALID_REPLICATION_FACTOR,
    ErrorCode.INVALID_PARTITIONS,
)

REPORT_EVERY = 500


class SettingsViolation(AssertionError):
    """A setting did harm."""


@dataclass
class SettingsRun:
    """What has been drawn, and what came of it."""

    seed: int
    draws: int = 0
    accepted: int = 0
    refused: int = 0
    uses: Counter[str] = field(default_factory=Counter)
    restarts: int = 0
    corrections: int = 0
    ledger: list[bytes] = field(default_factory=list)
    committed: int = 0

    def __str__(self) -> str:
        return (
            f"seed {self.seed}: {self.draws} draws, {self.accepted} accepted, {self.refused} refused, "
            f"{self.corrections} times corrected, {self.restarts} restarts, {len(self.ledger)} records kept; "
            f"uses: {dict(sorted(self.uses.items()))}"
        )


class SettingsCluster:
    """A broker whose settings are changed, and its clients."""

    def __init__(self, broker: Broker, seed: int, *, is_poisoned: bool = False) -> None:
        self._broker = broker
        self._luck = random.Random(seed)
        self._is_poisoned = is_poisoned
        self._explained = (*EXPLAINED, *OFFLINE) if is_poisoned else EXPLAINED
        self.run = SettingsRun(seed)
        self.traffic = ClusterTraffic(self._addresses)
        self._down: int | None = None
        self._created = 0
        self.resources = {
            ConfigResourceType.TOPIC: [VICTIM, VICTIM, VICTIM, OTHER, *INTERNAL_CONFIGS],
            ConfigResourceType.BROKER: ["", "", "1"],
            ConfigResourceType.GROUP: [GROUP, SHARE, QUEUE],
            ConfigResourceType.CLIENT_METRICS: ["figures"],
        }
        self._drawer = ChangeDrawer(self._luck, self.resources)
        self._history: list[DrawnChange] = []

    def _addresses(self) -> list[BrokerAddress]:
        found = []
        for number, node in enumerate(self._broker.nodes):
            if number != self._down:
                host, _, port = node.address.rpartition(":")
                found.append((host, int(port)))
        return found

    def prepare(self) -> None:
        """Create the topics, those that are internal too."""
        self._create(LEDGER, LEDGER_CONFIGS)
        for name in (VICTIM, OTHER):
            self._create(name, {})
        for name, use in self._uses():
            code = use()
            assert code is ErrorCode.NONE, f"{name}: {code.name}"

    def step(self) -> None:
        """One draw, and a little work after it."""
        self.run.draws += 1
        if self._luck.random() < 0.05:
            self._create_some()
        else:
            self.change(self._drawer.draw())
        self.use()

    def change(self, change: DrawnChange) -> ErrorCode:
        """Ask for a change: it is made, or refused with words about it."""
        self._history.append(change)
        row = self._submit(change)
        code = ErrorCode(row.error_code)
        if code is ErrorCode.NONE:
            self.run.accepted += 1
            return code
        self.run.refused += 1
        if code not in REFUSALS:
            raise SettingsViolation(f"{change} ended with {code.name}: {row.error_message}")
        if not row.error_message:
            raise SettingsViolation(f"{change} was refused without a word: {code.name}")
        return code

    def use(self) -> None:
        """Write to the ledger, which must work; and one use more, which works or says why not."""
        self._keep()
        luck = self._luck
        name, use = luck.choice(self._uses()) if luck.random() < 0.5 else self._uses()[0]
        with self.traffic.brief(OFFLINE, OFFLINE_MS) if self._is_poisoned else nullcontext():
            code = use()
        self.run.uses[f"{name} {code.name}"] += 1
        if code not in self._explained:
            raise SettingsViolation(f"{name} ended with {code.name} after {self._recent()}")

    def correct(self) -> None:
        """Remove every setting: that is possible, and then everything works."""
        self.run.corrections += 1
        for kind, names in self.resources.items():
            for name in dict.fromkeys(names):
                self._remove_all(kind, name)
        for name, use in self._uses():
            # A replica that was offline comes back, and then into sync.
            deadline, code = Deadline(CORRECTED_SECONDS), use()
            while code in UNDER_REPLICATED and not deadline.is_over():
                code = use()
            if code is not ErrorCode.NONE:
                raise SettingsViolation(f"{name} ended with {code.name} though nothing is set")

    def restart(self) -> None:
        """Stop a node and start it again, with what is set now."""
        self.run.restarts += 1
        number = self._luck.randrange(len(self._broker.nodes))
        node = self._broker.nodes[number]
        self.traffic.close()
        self._down = number
        node.stop()
        if len(self._broker.nodes) > 1:
            self._keep()
        _start(node)
        self._down = None
        self._keep(deadline_ms=20_000)
        self._check_committed()

    def finish(self) -> None:
        """Correct everything, and read what the ledger holds."""
        self.correct()
        self._check_committed()
        found = self.traffic.read_all(LEDGER)
        lost = set(self.run.ledger) - set(found)
        if lost:
            raise SettingsViolation(f"{len(lost)} records were acknowledged and are lost: {sorted(lost)[:5]}")

    def _keep(self, *, deadline_ms: int = 10_000) -> None:
        value = b"%d" % len(self.run.ledger)
        code = self.traffic.produce(LEDGER, value, deadline_ms=deadline_ms)
        if code is not ErrorCode.NONE:
            raise SettingsViolation(f"the ledger refused a record with {code.name} after {self._recent()}")
        self.run.ledger.append(value)

    def _uses(self) -> list[tuple[str, Callable[[], ErrorCode]]]:
        traffic = self.traffic
        return [
            ("produce", lambda: traffic.produce(VICTIM, b"value")),
            ("produce large", lambda: traffic.produce(VICTIM, b"v" * 20_000)),
            ("read", lambda: traffic.read(VICTIM)),
            ("produce other", lambda: traffic.produce(OTHER, b"value")),
            ("commit", self._commit),
            ("join", lambda: traffic.join(GROUP, OTHER)),
            ("join share", lambda: traffic.join_share_group(SHARE, OTHER)),
            ("transact", lambda: traffic.transact("transactions", OTHER)),
            ("receive", lambda: traffic.receive(QUEUE, OTHER)),
            ("delay", lambda: traffic.delay(OTHER)),
        ]

    def _commit(self) -> ErrorCode:
        """Commit how many records the ledger holds, so that a group's state that is lost shows."""
        offset = len(self.run.ledger)
        code = self.traffic.commit_offset(KEEPER, OTHER, offset)
        if code is ErrorCode.NONE:
            self.run.committed = offset
        return code

    def _check_committed(self) -> None:
        found = self.traffic.committed_offset(KEEPER, OTHER)
        if found != self.run.committed:
            raise SettingsViolation(f"a group has committed {self.run.committed}, and finds {found}")

    def _recent(self) -> str:
        return "; ".join(str(change) for change in self._history[-5:])

    def _create(self, name: str, configs: dict[str, str]) -> Any:
        topic = CreateTopicsRequestTopic(
            name=name,
            num_partitions=1,
            replication_factor=-1,
            assignments=(),
            configs=tuple(CreateTopicsRequestConfig(name=key, value=value) for key, value in configs.items()),
        )
        request = CreateTopicsRequest(topics=(topic,))
        return self.traffic.admin(request, lambda answer: int(answer.topics[0].error_code)).topics[0]

    def _create_some(self) -> None:
        """Create a topic with random settings, write to it, and delete it."""
        self._created += 1
        name, configs = f"new-{self._created}", self._drawer.configs()
        row = self._create(name, configs)
        if row.error_code in NOT_CREATED:
            self.run.refused += 1
            return
        if row.error_code:
            raise SettingsViolation(f"a topic with {configs} was refused: {row.error_message}")
        self.run.accepted += 1
        code = self.traffic.produce(name, b"value")
        if code not in self._explained:
            raise SettingsViolation(f"a topic with {configs} takes no record: {code.name}")
        topic = DeleteTopicsRequestTopic(name=name, topic_id=ZERO_UUID)
        request = DeleteTopicsRequest(topics=(topic,), timeout_ms=10_000)
        deleted = self.traffic.admin(request, lambda answer: int(answer.responses[0].error_code))
        if deleted.responses[0].error_code:
            raise SettingsViolation(f"a topic with {configs} cannot be deleted: {deleted.responses[0]}")

    def _submit(self, change: DrawnChange) -> Any:
        if change.is_whole:
            return self._replace_all(change)
        configs = tuple(
            IncrementalAlterConfigsRequestConfig(
                name=one.key, config_operation=int(one.operation), value=one.value
            )
            for one in change.keys
        )
        resource = IncrementalAlterConfigsRequestResource(
            resource_type=int(change.kind), resource_name=change.name, configs=configs
        )
        request = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=change.validate_only)
        return self.traffic.admin(request, lambda answer: int(answer.responses[0].error_code)).responses[0]

    def _replace_all(self, change: DrawnChange) -> Any:
        configs = tuple(AlterConfigsRequestConfig(name=one.key, value=one.value) for one in change.keys)
        resource = AlterConfigsRequestResource(
            resource_type=int(change.kind), resource_name=change.name, configs=configs
        )
        request = AlterConfigsRequest(resources=(resource,), validate_only=change.validate_only)
        return self.traffic.admin(request, lambda answer: int(answer.responses[0].error_code)).responses[0]

    def _remove_all(self, kind: ConfigResourceType, name: str) -> None:
        """Remove a resource's own settings, those that there are, one after the other."""
        wanted = DescribeConfigsRequestResource(
            resource_type=int(kind), resource_name=name, configuration_keys=None
        )
        request = DescribeConfigsRequest(resources=(wanted,), include_synonyms=True)
        row = self.traffic.admin(request, lambda answer: int(answer.results[0].error_code)).results[0]
        if row.error_code:
            raise SettingsViolation(f"{kind.name} {name!r} cannot be described: {row.error_message}")
        keys = [config.name for config in row.configs if self._is_own(kind, name, config)]
        self._luck.shuffle(keys)
        for key in keys:
            self._restore(kind, name, key)

    def _is_own(self, kind: ConfigResourceType, name: str, config: Any) -> bool:
        source = {
            ConfigResourceType.TOPIC: 1,
            ConfigResourceType.CLIENT_METRICS: 7,
            ConfigResourceType.GROUP: 8,
        }
        own = source.get(kind, 3 if name == "" else 2)
        return any(one.source == own and one.name == config.name for one in config.synonyms)

    def _restore(self, kind: ConfigResourceType, name: str, key: str) -> None:
        # An internal topic has settings of its own that its owner needs: those go back to what they were.
        own = INTERNAL_CONFIGS.get(name, {}).get(key) if kind is ConfigResourceType.TOPIC else None
        operation = ConfigOperation.DELETE if own is None else ConfigOperation.SET
        change = DrawnChange(kind, name, (DrawnKey(operation, key, own),), False, False)
        row = self._submit(change)
        if row.error_code:
            raise SettingsViolation(f"{change} cannot be corrected: {row.error_message}")


def _start(node: BrokerNode) -> None:
    """Start a node again at its address, which another program may have got for a connection meanwhile."""
    for _ in range(PORT_TRIES):
        try:
            node.start()
            return
        except AddressInUse:
            time.sleep(PORT_SECONDS)
    node.start()


# A node that looks at its logs often meets more of what is set.
SETTINGS = {"storage.retention_check_ms": 200, "storage.compaction_interval_ms": 1_000}


@contextmanager
def unchecked() -> Iterator[None]:
    """Nobody checks settings, as if another version had accepted them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decide_configs, "problem_with", lambda *_: None)
        patch.setattr(decide_configs, "problem_with_internal_topic", lambda *_: None)
        patch.setattr(decide_topics, "problem_with", lambda *_: None)
        patch.setattr(decide_topics, "problem_with_internal_topic", lambda *_: None)
        yield


@contextmanager
def settings_cluster(seed: int, nodes: int = 1, *, is_poisoned: bool = False) -> Iterator[SettingsCluster]:
    """A broker on threads of this process, prepared for random settings."""
    with broker(nodes=nodes, in_process=True, settings=SETTINGS) as running:
        cluster = SettingsCluster(running, seed, is_poisoned=is_poisoned)
        try:
            cluster.prepare()
            yield cluster
        finally:
            cluster.traffic.close()


def run(
    seed: int,
    draws: int,
    nodes: int = 1,
    *,
    is_poisoned: bool = False,
    correct_every: int = 50,
    restart_every: int = 70,
    report: Callable[[str], None] = lambda _: None,
) -> SettingsRun:
    """Draw, correct and restart; raises SettingsViolation."""
    with settings_cluster(seed, nodes, is_poisoned=is_poisoned) as cluster:
        for number in range(1, draws + 1):
            with unchecked() if is_poisoned else nullcontext():
                cluster.step()
            if number % restart_every == 0:
                cluster.restart()
            if number % correct_every == 0:
                cluster.correct()
            if number % REPORT_EVERY == 0:
                report(str(cluster.run))
        cluster.finish()
        return cluster.run


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Random settings for a running cluster.")
    parser.add_argument("--draws", type=int, default=10_000)
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--poison", action="store_true", help="store values unchecked")
    given = parser.parse_args(arguments)

    def report(line: str) -> None:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()

    done = run(given.seed, given.draws, given.nodes, is_poisoned=given.poison, report=report)
    report(f"done: {done}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
