"""Which partitions a topic has and which offsets they hold, for somebody who plans reads.

A command fails at once when no broker responds. A planner runs for weeks: it asks again, at growing
intervals, until `patience_ms` are over.

librdkafka sends a question about offsets to the leader that it knows, and waits for that broker to
come back as long as the question may take, even when another one leads by then. So the first question
may take half a second only, and each time it is repeated twice as long, with a client that knows nothing yet.
"""

import re
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeVar

from penstock.client.admin import EARLIEST, LATEST, is_internal
from penstock.client.endpoint import (
    REQUEST_SECONDS,
    BrokerUnreachable,
    Endpoint,
    check_reachable,
    client_error,
    opened,
    reason,
)
from penstock.core.model import MILLISECOND
from penstock.runtime.loop import MachineClock

PATIENCE_MS = 120_000
# Before the first response the address may simply be wrong: report that soon.
FIRST_PATIENCE_MS = 15_000
PAUSE_SECONDS, PAUSE_SECONDS_MAX = 0.1, 0.5
FIRST_REQUEST_SECONDS = 0.5
_UNKNOWN = frozenset({"UNKNOWN_TOPIC_OR_PART", "UNKNOWN_TOPIC_ID", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION"})
_PASSING = frozenset({
    "_ALL_BROKERS_DOWN", "_NOENT", "_NODE_UPDATE", "_RESOLVE", "_TIMED_OUT", "_TRANSPORT", "_WAIT_COORD",
    "LEADER_NOT_AVAILABLE", "NOT_LEADER_FOR_PARTITION", "BROKER_NOT_AVAILABLE", "REQUEST_TIMED_OUT",
    "OFFSET_NOT_AVAILABLE", "KAFKA_STORAGE_ERROR", "UNKNOWN_LEADER_EPOCH", "FENCED_LEADER_EPOCH",
})  # fmt: skip
Answer = TypeVar("Answer")
Partition = tuple[str, int]


class TopicInfo(NamedTuple):
    """A topic as it is now; a topic deleted and created again has another id (empty: not known)."""

    topic: str
    topic_id: str
    partitions: tuple[int, ...]


class TopicCatalog:
    """The topics of a cluster and the offsets in them, asked for again and again."""

    def __init__(
        self, endpoint: Endpoint, *, committed_only: bool = True, patience_ms: int = PATIENCE_MS
    ) -> None:
        # Asking about a topic must not create it, and a broker that is back should be noticed soon.
        ours = {"allow.auto.create.topics": "false", "reconnect.backoff.max.ms": "1000"}
        self._endpoint = Endpoint(endpoint.bootstrap, {**endpoint.options, **ours})
        self._committed_only = committed_only
        self._patience_ms = patience_ms
        self._opened: Any = None
        self._answered = False
        self._request_seconds = FIRST_REQUEST_SECONDS
        # Where brokers were seen last: the bootstrap addresses may be those of one that is away.
        self._seen: tuple[str, ...] = ()

    def topics(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        """Those of the topics that exist."""
        asked = sorted(set(names))
        return self._patiently(lambda: self._described(asked)) if asked else {}

    def matching(self, pattern: re.Pattern[str]) -> dict[str, TopicInfo]:
        """The topics whose whole name matches; the brokers' own never do."""
        listed = self._patiently(lambda: self._ask(lambda: self._admin().list_topics(timeout=5)))
        return self.topics(
            name for name in listed.topics if pattern.fullmatch(name) and not is_internal(name)
        )

    def offsets(self, moments: Mapping[Partition, int]) -> dict[Partition, int]:
        """For each partition the offset at its moment: EARLIEST, LATEST or a timestamp in ms.

        -1 is "no record that late"; a partition that does not exist is left out.
        """
        return self._patiently(lambda: self._offsets(moments)) if moments else {}

    def earliest(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        return self.offsets(dict.fromkeys(partitions, EARLIEST))

    def latest(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """The end of each partition: of what is committed, unless uncommitted records are read too."""
        return self.offsets(dict.fromkeys(partitions, LATEST))

    def _described(self, names: list[str]) -> dict[str, TopicInfo]:
        from confluent_kafka import TopicCollection

        asked = self._ask(
            lambda: self._admin().describe_topics(
                TopicCollection(names), request_timeout=self._request_seconds
            )
        )
        found = {}
        seen: dict[str, None] = {}
        for name in names:
            topic = self._ask(partial(asked[name].result, self._request_seconds + 5), f"topic {name}")
            if topic is not None:
                nodes = (node for partition in topic.partitions for node in partition.replicas)
                seen |= {f"{node.host}:{node.port}": None for node in nodes if node.host}
                partitions = tuple(sorted(partition.id for partition in topic.partitions))
                found[name] = TopicInfo(name, _plain_id(topic.topic_id), partitions)
        self._seen = tuple(seen) or self._seen
        return found

    def _offsets(self, moments: Mapping[Partition, int]) -> dict[Partition, int]:
        from confluent_kafka import IsolationLevel, TopicPartition
        from confluent_kafka.admin import OffsetSpec

        specs = {EARLIEST: OffsetSpec.earliest(), LATEST: OffsetSpec.latest()}
        asked = {
            TopicPartition(*one): specs.get(moment) or OffsetSpec.for_timestamp(moment)
            for one, moment in moments.items()
        }
        level = IsolationLevel.READ_COMMITTED if self._committed_only else IsolationLevel.READ_UNCOMMITTED
        answers = self._ask(
            lambda: self._admin().list_offsets(
                asked, isolation_level=level, request_timeout=self._request_seconds
            )
        )
        found = {}
        for one, future in answers.items():
            answer = self._ask(partial(future.result, self._request_seconds + 5), f"topic {one.topic}")
            if answer is not None:
                found[one.topic, one.partition] = int(answer.offset)
        return found

    def _ask(self, ask: Callable[[], Any], about: str = "") -> Any:
        """The result; None is "there is no such thing". An error names what it is `about`."""
        from confluent_kafka import KafkaException

        try:
            return ask()
        except KafkaException as error:
            name = error.args[0].name()
            if name in _UNKNOWN:
                return None
            if name in _PASSING or error.args[0].retriable():
                raise BrokerUnreachable(f"{self._endpoint.bootstrap}: {reason(error)}") from None
            raise client_error(about or self._endpoint.bootstrap, error) from None
        except TimeoutError:
            raise BrokerUnreachable(f"{self._endpoint.bootstrap}: no response in time") from None

    def _admin(self) -> Any:
        from confluent_kafka.admin import AdminClient

        if self._opened is None:
            bootstrap = ",".join((self._endpoint.bootstrap, *self._seen))
            endpoint = Endpoint(bootstrap, self._endpoint.options)
            check_reachable(endpoint)
            self._opened = opened(AdminClient, endpoint.settings())
        return self._opened

    def _patiently(self, ask: Callable[[], Answer]) -> Answer:
        patience_ms = self._patience_ms if self._answered else min(self._patience_ms, FIRST_PATIENCE_MS)
        clock = MachineClock()
        deadline = clock.now() + patience_ms * MILLISECOND
        pause, self._request_seconds = PAUSE_SECONDS, FIRST_REQUEST_SECONDS
        while True:
            try:
                answer = ask()
            except BrokerUnreachable:
                if clock.now() >= deadline:
                    raise
            else:
                self._answered = True
                return answer
            # librdkafka remembers that a partition has no leader, and goes on saying so when it has one.
            self._opened = None
            time.sleep(pause)
            pause = min(pause * 2, PAUSE_SECONDS_MAX)
            self._request_seconds = min(self._request_seconds * 2, REQUEST_SECONDS)


def _plain_id(topic_id: Any) -> str:
    # librdkafka writes ids with an alphabet that no file name could hold; Kafka does not.
    text = str(topic_id).replace("+", "-").replace("/", "_")
    return "" if set(text) <= {"A"} else text
