"""The committed offsets of a group, read and written from outside of it.

Without librdkafka's admin client: it aborts the process when a request for a coordinator that is away has
timed out and the coordinator comes back (librdkafka, issue 3663).
"""

import time
from collections.abc import Mapping
from typing import Any

from penstock.client.connection import BrokerConnection
from penstock.client.coordinator import (
    COORDINATOR_CHANGES,
    GROUP,
    PAUSE_SECONDS,
    Deadline,
    coordinator,
    expect,
)
from penstock.client.endpoint import (
    REQUEST_SECONDS,
    ClientError,
    Disconnected,
    Endpoint,
    client_error,
    opened,
)
from penstock.core.model import SECOND
from penstock.core.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from penstock.runtime.loop import MachineClock

# A response ends no poll, since it is no record.
COMMIT_TURN_SECONDS = 0.01
# OffsetFetch: many groups at once, and names of topics until then.
GROUPS_SINCE, NAMES_UNTIL = 8, 9


def committed_offsets(
    endpoint: Endpoint, group: str, patience_seconds: float = REQUEST_SECONDS
) -> dict[tuple[str, int], int]:
    """The group's committed offset in each partition where it has one.

    ClientError if its coordinator is away for longer than the patience lasts.
    """
    what, deadline = f"group {group}", Deadline(patience_seconds)
    while True:
        try:
            with coordinator(endpoint, GROUP, group, what, deadline) as (_, connection):
                code, topics = _fetch_offsets(connection, group)
        except Disconnected as error:
            if deadline.is_over():
                raise ClientError(f"{what}: no coordinator in {patience_seconds:g} s ({error})") from None
        else:
            if code not in COORDINATOR_CHANGES or deadline.is_over():
                expect(what, code)
                return _committed(what, topics)
        time.sleep(PAUSE_SECONDS)


def _fetch_offsets(connection: BrokerConnection, group: str) -> tuple[int, Any]:
    """The error of the whole group, and its topics."""
    version = min(connection.version(OffsetFetchRequest), NAMES_UNTIL)
    if version < GROUPS_SINCE:
        connection.send(OffsetFetchRequest(group_id=group, topics=None), version)
        found = connection.receive()
    else:
        connection.send(
            OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id=group, topics=None),)), version
        )
        (found,) = connection.receive().groups
    return found.error_code, found.topics


def _committed(what: str, topics: Any) -> dict[tuple[str, int], int]:
    found = {}
    for topic in topics:
        for part in topic.partitions:
            expect(f"{what}, {topic.name}-{part.partition_index}", part.error_code)
            if part.committed_offset >= 0:
                found[topic.name, part.partition_index] = part.committed_offset
    return found


class GroupOffsetWriter:
    """Commits offsets for a group without members, over and over, as a consumer that never joins."""

    def __init__(self, endpoint: Endpoint, group: str, patience_seconds: float = REQUEST_SECONDS) -> None:
        from confluent_kafka import Consumer

        self._group = group
        self._patience_seconds = patience_seconds
        self._committed: list[tuple[Any, list[Any]]] = []
        ours = {"group.id": group, "enable.auto.commit": False, "on_commit": self._note}
        self._consumer: Any = opened(Consumer, endpoint.settings() | ours)

    def commit(self, offsets: Mapping[tuple[str, int], int]) -> None:
        """Commit, and wait for it; ClientError if the group has members, or no coordinator for some time.

        What could not be committed in time may be so later, unless something newer comes before.
        """
        from confluent_kafka import KafkaException, TopicPartition

        self._committed.clear()
        clock = MachineClock()
        deadline = clock.now() + int(self._patience_seconds * SECOND)
        asked = [TopicPartition(*one, offset) for one, offset in offsets.items()]
        try:
            # Not the call that waits: without a coordinator it does so for the best part of a minute.
            self._consumer.commit(offsets=asked, asynchronous=True)
        except KafkaException as error:
            raise client_error(f"group {self._group}", error) from None
        while not self._is_committed(offsets):
            if clock.now() >= deadline:
                raise ClientError(f"group {self._group}: no coordinator in {self._patience_seconds:g} s")
            self._consumer.poll(COMMIT_TURN_SECONDS)

    def close(self) -> None:
        self._consumer.close()

    def _note(self, error: Any, partitions: list[Any]) -> None:
        self._committed.append((error, partitions))

    def _is_committed(self, offsets: Mapping[tuple[str, int], int]) -> bool:
        """Whether there is a response to this request; one to an older request has other offsets."""
        for error, partitions in self._committed:
            if {(one.topic, one.partition): one.offset for one in partitions} != offsets:
                continue
            if failed := error or next((one.error for one in partitions if one.error is not None), None):
                raise client_error(f"group {self._group}", failed)
            return True
        return False
