"""Clients that read whole partitions by themselves, without a group.

A consumer has one fetch per node under way, for all partitions that the node leads. Some consumers keep
a fetch session with each node (KIP-227), and name only the partitions that they have moved in. The ends
of partitions are asked for on connections of their own: there no response waits for another one, and
what it says is what the leader knows at that moment.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from penstock.core.model import CorruptionError
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.fetch import (
    FetchRequest,
    FetchRequestForgottenTopic,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponse,
    FetchResponsePartition,
)
from penstock.core.protocol.messages.list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
    ListOffsetsResponse,
    ListOffsetsResponsePartition,
)
from penstock.core.protocol.messages.metadata import MetadataRequest
from penstock.core.protocol.schema import ZERO_UUID
from penstock.sim.cluster.clients.client import (
    NO_EPOCH,
    ClusterNodes,
    KnownLeader,
    SimulatedClient,
    is_retriable,
)
from penstock.sim.cluster.clients.connection import Observe
from penstock.sim.cluster.journal import Place
from penstock.sim.cluster.options import TOPIC
from penstock.sim.values import end_of, values_of

WAIT_MS = 200
FETCH_BYTES = 1 << 16
BACK_TO_START = 0.02
ASK_FOR_END = 0.1
ASK_NEW_LEADER = 1.0
# Fetches that come back with nothing at all are followed by a rest, so that they do not fill the run.
REST_MS = 20
LATEST, EARLIEST = -1, -2
# Before, a response had a list of offsets.
ONE_OFFSET_SINCE = 1
NO_REPLICA = -1
NO_SESSION, FIRST_EPOCH, SESSIONLESS_EPOCH = 0, 0, -1
WITH_SESSION = 0.5
SESSIONS_SINCE = 7
TOPIC_IDS_SINCE = 13
# Since when requests say which leader they are meant for, and Metadata has leader epochs.
METADATA_EPOCHS_SINCE, FETCH_EPOCHS_SINCE, LIST_EPOCHS_SINCE = 7, 9, 4
OVER = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)


@dataclass(slots=True)
class ConsumerPosition:
    """How far a consumer is in one partition."""

    place: Place
    position: int = 0
    furthest: int = 0
    epoch: int = NO_EPOCH
    is_waiting: bool = False


@dataclass(slots=True)
class SimulatedFetchSession:
    """A fetch session with one node: what the node knows of this consumer's partitions."""

    session_id: int = NO_SESSION
    epoch: int = FIRST_EPOCH
    # Position and leader epoch by partition.
    known: dict[Place, tuple[int, int]] = field(default_factory=dict)


class FetchClient(SimulatedClient):
    """One that reads: how a fetch is sent, and what is made of the response."""

    # The topic it reads.
    topic = TOPIC

    def fetch_version(self) -> int:
        has_id = self.topic_id(self.topic) is not None
        return self.versions.of(FetchRequest, until=None if has_id else TOPIC_IDS_SINCE - 1)

    def fetch_topics(self, wanted: list[tuple[Place, int, int]]) -> tuple[FetchRequestTopic, ...]:
        """The partitions of a request, from positions and leader epochs."""
        if not wanted:
            return ()
        return (
            FetchRequestTopic(
                topic_id=self.topic_id(self.topic) or ZERO_UUID,
                topic=self.topic,
                partitions=tuple(
                    FetchRequestPartition(
                        partition=place[1],
                        current_leader_epoch=epoch,
                        fetch_offset=position,
                        partition_max_bytes=FETCH_BYTES,
                    )
                    for place, position, epoch in wanted
                ),
            ),
        )

    def observing_fetch(self, node_id: int, places: Iterable[Place]) -> Observe:
        """What to do when the node writes the response to a fetch that is sent now.

        Every row is something that a leader reports.
        """
        node = self.nodes.node(node_id)
        known = {place: self.journal.freshness.asking(place) for place in places}

        def observe(response: FetchResponse) -> None:
            for row in rows_of(response):
                if row.error_code == ErrorCode.NONE:
                    place = (self.topic, row.partition_index)
                    node.shows_partition(place, row.high_watermark)
                    if place in known:
                        node.answers(place, known[place], row.high_watermark)

        return observe

    def ask_start(self, node_id: int, place: Place, epoch: int, then: Callable[[int | None], None]) -> None:
        """Ask a leader where the log starts: what a client does whose position was deleted."""
        version = max(self.versions.of(ListOffsetsRequest), ONE_OFFSET_SINCE)

        def observe(_: ListOffsetsResponse) -> None:
            # Not when the response arrives: the node may be gone by then.
            self.nodes.node(node_id).probe.look(place)

        def answered(reply: object) -> None:
            row = _ends(reply)[0] if isinstance(reply, ListOffsetsResponse) else None
            if row is None or row.error_code != ErrorCode.NONE:
                then(None)
                return
            if row.offset > self.journal.log_starts.deletable(place):
                self.journal.failures.append(
                    f"deleted too much: {self.host} was told that {place} starts at {row.offset}"
                )
            then(row.offset)

        self.ask(node_id, _list_offsets(place, epoch, EARLIEST), version, answered, observe)

    def records_of(self, row: FetchResponsePartition, position: int) -> tuple[list[tuple[int, bytes]], int]:
        """What is new in a row, and where to go on; all below the high watermark that came with it."""
        assert row.records is None or isinstance(row.records, bytes | memoryview), (
            "records were sent as bytes"
        )
        content = b"" if row.records is None else bytes(row.records)
        try:
            records = [pair for pair in values_of(content) if pair[0] >= position]
        except CorruptionError:
            # As every client does: it checks the CRC, and asks again.
            self.journal.coverage.add("client.damaged_fetch", 1)
            return [], position
        if records and records[-1][0] >= row.high_watermark:
            self.journal.failures.append(
                f"unsafe read: {self.host} was given {records[-1][0]} of {row.partition_index} "
                f"with the high watermark {row.high_watermark}"
            )
        # Compaction leaves batches without records.
        return records, max(position, end_of(content))


def rows_of(response: FetchResponse) -> list[FetchResponsePartition]:
    return [row for topic in response.responses for row in topic.partitions]


class AssignedConsumer(FetchClient):
    """Polls its partitions, goes back to the start now and then, and asks for the end."""

    def __init__(self, nodes: ClusterNodes, host: str, places: list[Place]) -> None:
        super().__init__(nodes, host)
        self._readings = {place: ConsumerPosition(place) for place in places}
        # On the same host, with connections of its own.
        self._offset_lookup = SimulatedClient(nodes, host)
        self._has_sessions = self.luck.random() < WITH_SESSION
        self._sessions: dict[int, SimulatedFetchSession] = {}
        # Nodes with a request under way.
        self._asked: dict[int, None] = {}
        self._stopped = False

    @property
    def _knows_epochs(self) -> bool:
        """Whether no former leader can serve it: where leader epochs come with all requests."""
        return (
            self.versions.of(MetadataRequest) >= METADATA_EPOCHS_SINCE
            and self.versions.of(FetchRequest) >= FETCH_EPOCHS_SINCE
        )

    def start(self) -> None:
        for place in self._readings:
            self.journal.log(*place).sought(self.host)
        self._poll()

    def furthest(self, place: Place) -> int:
        """How far it has ever come in a partition."""
        return self._readings[place].furthest

    def stop(self) -> None:
        """Send no more requests."""
        self._stopped = True

    def _poll(self) -> None:
        """Fetch from every leader that has no request under way, for all partitions that wait."""
        if self._stopped:
            return
        by_leader: dict[int, list[ConsumerPosition]] = {}
        for reading in [reading for reading in self._readings.values() if not reading.is_waiting]:
            leader = self._leader_of(reading)
            if leader is not None and leader.node_id not in self._asked:
                by_leader.setdefault(leader.node_id, []).append(reading)
        for node_id, readings in by_leader.items():
            self._asked[node_id] = None
            for reading in readings:
                reading.is_waiting = True
            self._ask(node_id, readings)

    def _leader_of(self, reading: ConsumerPosition) -> KnownLeader | None:
        """Who leads a partition; a new leader is asked for its end at once.

        It must not report less than the old leader did.
        """
        leader = self.leader(reading.place)
        if leader is None:
            self._look_around([reading])
        elif leader.epoch != reading.epoch:
            reading.epoch = leader.epoch
            self._perhaps_ask_end(ASK_NEW_LEADER, leader.node_id, reading)
        return leader

    def _ask(self, node_id: int, readings: list[ConsumerPosition]) -> None:
        for reading in readings:
            self._perhaps_ask_end(ASK_FOR_END, node_id, reading)
        if self.luck.random() < BACK_TO_START:
            reading = self.luck.choice(readings)
            reading.position = 0
            self.journal.log(*reading.place).sought(self.host)
        self._fetch(node_id, readings)

    def _over(self, node_id: int, readings: list[ConsumerPosition]) -> None:
        """The request to a node has its response, or none will come."""
        del self._asked[node_id]
        for reading in readings:
            reading.is_waiting = False

    def _perhaps_ask_end(self, chance: float, node_id: int, reading: ConsumerPosition) -> None:
        if self.luck.random() >= chance:
            return
        version = self.versions.of(ListOffsetsRequest)
        request = _list_offsets(reading.place, reading.epoch, LATEST)
        known = self.journal.freshness.asking(reading.place)

        def observe(response: ListOffsetsResponse) -> None:
            node = self.nodes.node(node_id)
            for row in [row for row in _ends(response) if row.error_code == ErrorCode.NONE]:
                if version:  # the first one has a list of offsets
                    node.answers(reading.place, known, row.offset)
                if version >= LIST_EPOCHS_SINCE:  # older ones do not say in which epoch
                    node.tells_end(reading.place, row.leader_epoch, row.offset)

        self._offset_lookup.ask(node_id, request, version, self._told_end, observe)

    def _told_end(self, reply: object) -> None:
        for row in _ends(reply) if isinstance(reply, ListOffsetsResponse) else ():
            if row.error_code != ErrorCode.NONE and not is_retriable(row.error_code):
                self.journal.failures.append(
                    f"unexpected error: {self.host} got {row.error_code} from ListOffsets"
                )

    def _fetch(self, node_id: int, readings: list[ConsumerPosition]) -> None:
        version = self.fetch_version()
        session = self._session_with(node_id, version)
        wanted = {reading.place: (reading.position, reading.epoch) for reading in readings}
        known = {} if session is None else session.known
        changed = [(place, *state) for place, state in wanted.items() if known.get(place) != state]
        forgotten = tuple(place[1] for place in known if place not in wanted)
        request = FetchRequest(
            max_wait_ms=WAIT_MS,
            min_bytes=1,
            max_bytes=FETCH_BYTES,
            session_id=NO_SESSION if session is None else session.session_id,
            session_epoch=SESSIONLESS_EPOCH if session is None else session.epoch,
            topics=self.fetch_topics(changed),
            forgotten_topics_data=(
                FetchRequestForgottenTopic(
                    topic_id=self.topic_id(TOPIC) or ZERO_UUID, topic=TOPIC, partitions=forgotten
                ),
            )
            if forgotten
            else (),
        )
        if session is not None:
            session.known = dict(wanted)

        def answered(reply: object) -> None:
            self._over(node_id, readings)
            if not isinstance(reply, FetchResponse):
                self._sessions.pop(node_id, None)
                self._go_on(readings)
            elif reply.error_code:
                self._sessions.pop(node_id, None)
                if reply.error_code not in OVER:
                    self.journal.failures.append(
                        f"unexpected error: {self.host} got {reply.error_code} from Fetch"
                    )
                self._poll()
            else:
                self._fetched(node_id, reply)

        self.ask(node_id, request, version, answered, self.observing_fetch(node_id, wanted))

    def _session_with(self, node_id: int, version: int) -> SimulatedFetchSession | None:
        if not self._has_sessions or version < SESSIONS_SINCE:
            return None
        return self._sessions.setdefault(node_id, SimulatedFetchSession())

    def _fetched(self, node_id: int, response: FetchResponse) -> None:
        session = self._sessions.get(node_id)
        if session is not None:
            if response.session_id == NO_SESSION:
                del self._sessions[node_id]
            else:
                session.session_id = response.session_id
                session.epoch += 1
        failed: list[ConsumerPosition] = []
        is_empty = True
        for row in rows_of(response):
            reading = self._readings[TOPIC, row.partition_index]
            if row.error_code != ErrorCode.NONE:
                failed += self._refused(node_id, row, reading)
                continue
            records, position = self.records_of(row, reading.position)
            if position > reading.position:
                is_empty = False
                self.journal.log(*reading.place).polled(self.host, records)
                reading.position = position
                reading.furthest = max(reading.furthest, position)
        if failed:
            self._go_on(failed)
        elif is_empty:
            self.after_ms(REST_MS, self._poll)
        else:
            self._poll()

    def _refused(
        self, node_id: int, row: FetchResponsePartition, reading: ConsumerPosition
    ) -> list[ConsumerPosition]:
        """Returns whose leader has to be looked for."""
        if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._seek_start(node_id, reading)
            return []
        if not is_retriable(row.error_code):
            self.journal.failures.append(f"unexpected error: {self.host} got {row.error_code} from Fetch")
        self.hear_of_leader(reading.place, row.current_leader.leader_id, row.current_leader.leader_epoch)
        return [reading]

    def _seek_start(self, node_id: int, reading: ConsumerPosition) -> None:
        """Go on where the log starts: the position is not in it any more."""
        self.nodes.node(node_id).probe.look(reading.place)
        if self._knows_epochs and reading.position >= self.journal.log_starts.deletable(reading.place):
            # It stands behind a record that a leader has shown: whoever leads now must have that one.
            self.journal.failures.append(
                f"position lost: {self.host} at {reading.position} of {reading.place}"
            )
        reading.is_waiting = True

        def told(start: int | None) -> None:
            reading.is_waiting = False
            if start is None:
                self._go_on([reading])
                return
            reading.position = start
            reading.furthest = max(reading.furthest, start)
            self.journal.log(*reading.place).sought(self.host)
            self._poll()

        self.ask_start(node_id, reading.place, reading.epoch, told)

    def _go_on(self, failed: list[ConsumerPosition]) -> None:
        """Look for the leaders of those that failed, and read the others meanwhile."""
        if failed:
            self._look_around(failed)
        self._poll()

    def _look_around(self, readings: list[ConsumerPosition]) -> None:
        if self._stopped:
            return
        for reading in readings:
            reading.is_waiting = True

        def looked() -> None:
            for reading in readings:
                reading.is_waiting = False
            self._poll()

        self.after_ms(self.backoff_ms(), self.refresh_metadata, looked)


def _list_offsets(place: Place, epoch: int, timestamp: int) -> ListOffsetsRequest:
    partition = ListOffsetsRequestPartition(
        partition_index=place[1], current_leader_epoch=epoch, timestamp=timestamp
    )
    topic = ListOffsetsRequestTopic(name=place[0], partitions=(partition,))
    return ListOffsetsRequest(replica_id=NO_REPLICA, topics=(topic,))


def _ends(response: ListOffsetsResponse) -> list[ListOffsetsResponsePartition]:
    return [row for topic in response.topics for row in topic.partitions]
