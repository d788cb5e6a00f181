"""A node that was stopped or cut off tells its clients nothing that the others have overtaken."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.fetch import (
    FetchRequest,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponse,
)
from penstock.core.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from penstock.core.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.core.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from penstock.core.protocol.messages.list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
    ListOffsetsResponse,
)
from penstock.core.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from penstock.core.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from penstock.core.protocol.messages.produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
)
from penstock.core.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from penstock.core.records import Record, write_batch
from tests.cluster.stage import SETTINGS, create_topic
from tests.support.clusters import ClusterProcesses, cluster_of, until
from tests.support.network import network_of
from tests.support.wire import Wire

TOPIC, RECORDS = "watched", 5
LATEST = -1


class Answer(NamedTuple):
    """What a node says of a partition or a group; a value counts without an error only."""

    error: int
    value: int = -1


class Client:
    """One connection to one node, which asks about one partition and the groups of that node."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._wire = Wire(address)

    def close(self) -> None:
        self._wire.close()

    def send_produce(self, acks: int) -> Callable[[], Answer]:
        batch = bytes(write_batch([Record(0, int(time.time() * 1000), b"key", b"value")]))
        partition = ProduceRequestPartition(index=0, records=batch)
        topic = ProduceRequestTopic(name=TOPIC, partition_data=(partition,))
        self._wire.send(ProduceRequest(acks=acks, timeout_ms=1_000, topic_data=(topic,)), 8)

        def answer() -> Answer:
            (row,) = self._wire.read(ProduceResponse, 8).responses[0].partition_responses
            return Answer(row.error_code, row.base_offset)

        return answer

    def send_list_offsets(self) -> Callable[[], Answer]:
        partition = ListOffsetsRequestPartition(partition_index=0, timestamp=LATEST)
        topic = ListOffsetsRequestTopic(name=TOPIC, partitions=(partition,))
        self._wire.send(ListOffsetsRequest(replica_id=-1, topics=(topic,)), 5)

        def answer() -> Answer:
            (row,) = self._wire.read(ListOffsetsResponse, 5).topics[0].partitions
            return Answer(row.error_code, row.offset)

        return answer

    def send_fetch(self, offset: int, max_wait_ms: int = 0) -> Callable[[], Answer]:
        partition = FetchRequestPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
        topic = FetchRequestTopic(topic=TOPIC, partitions=(partition,))
        self._wire.send(FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, topics=(topic,)), 11)

        def answer() -> Answer:
            (row,) = self._wire.read(FetchResponse, 11).responses[0].partitions
            return Answer(row.error_code, row.high_watermark)

        return answer

    def send_commit(self, group: str, offset: int) -> Callable[[], Answer]:
        partition = OffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=None
        )
        topic = OffsetCommitRequestTopic(name=TOPIC, partitions=(partition,))
        self._wire.send(OffsetCommitRequest(group_id=group, topics=(topic,)), 7)

        def answer() -> Answer:
            (row,) = self._wire.read(OffsetCommitResponse, 7).topics[0].partitions
            return Answer(row.error_code)

        return answer

    def send_offset_fetch(self, group: str) -> Callable[[], Answer]:
        topic = OffsetFetchRequestTopic(name=TOPIC, partition_indexes=(0,))
        self._wire.send(OffsetFetchRequest(group_id=group, topics=(topic,)), 7)

        def answer() -> Answer:
            response = self._wire.read(OffsetFetchResponse, 7)
            if response.error_code:
                return Answer(response.error_code)
            (row,) = response.topics[0].partitions
            return Answer(row.error_code, row.committed_offset)

        return answer

    def send_heartbeat(self, group: str, member: str) -> Callable[[], Answer]:
        self._wire.send(HeartbeatRequest(group_id=group, generation_id=1, member_id=member), 3)
        return lambda: Answer(self._wire.read(HeartbeatResponse, 3).error_code)

    def coordinator_of(self, group: str) -> int | None:
        found = self._wire.ask(FindCoordinatorRequest(key=group), FindCoordinatorResponse, 2)
        return found.node_id if found.error_code == ErrorCode.NONE else None

    def join(self, group: str) -> str:
        """Become the only member, in the first generation; returns the member id."""

        def joined(member: str) -> JoinGroupResponse:
            protocol = JoinGroupRequestProtocol(name="range", metadata=b"")
            request = JoinGroupRequest(
                group_id=group,
                session_timeout_ms=60_000,
                rebalance_timeout_ms=60_000,
                member_id=member,
                protocol_type="consumer",
                protocols=(protocol,),
            )
            return self._wire.ask(request, JoinGroupResponse, 5)

        member = joined("").member_id
        assert joined(member).generation_id == 1
        request = SyncGroupRequest(
            group_id=group,
            generation_id=1,
            member_id=member,
            assignments=(SyncGroupRequestAssignment(member_id=member, assignment=b""),),
        )
        assert self._wire.ask(request, SyncGroupResponse, 3).error_code == ErrorCode.NONE
        return member


class Situation:
    """A leader that coordinates two groups as well, with records, a committed offset and a member."""

    def __init__(self, cluster: ClusterProcesses) -> None:
        self.cluster = cluster
        create_topic(cluster, TOPIC, partitions=1)
        cluster.await_in_sync(TOPIC)
        self.old = cluster.leader_of(TOPIC)
        self.others = [number for number in cluster.nodes if number != self.old]
        self.offsets_group, self.member_group = self._groups_of(self.old)
        until(lambda: self._write(self.old, RECORDS), "records are written")
        until(lambda: self._commit(self.old, RECORDS), "an offset is committed")
        with self.client(self.old) as client:
            self.member = client.join(self.member_group)

    @contextmanager
    def client(self, number: int) -> Iterator[Client]:
        client = Client(self.cluster.address(number))
        try:
            yield client
        finally:
            client.close()

    def _groups_of(self, number: int) -> tuple[str, str]:
        """Two groups that the node coordinates."""
        with self.client(number) as client:
            until(lambda: client.coordinator_of("any"), "there are coordinators")
            led = [f"g{n}" for n in range(100) if client.coordinator_of(f"g{n}") == number]
            return led[0], led[1]

    def _write(self, number: int, records: int) -> bool:
        with self.client(number) as client:
            return all(client.send_produce(-1)().error == ErrorCode.NONE for _ in range(records))

    def _commit(self, number: int, offset: int) -> bool:
        with self.client(number) as client:
            return client.send_commit(self.offsets_group, offset)().error == ErrorCode.NONE

    def go_on_without(self) -> None:
        """Wait for others to lead and to coordinate; then write and commit there."""
        watcher = self.others[0]

        def leader() -> int | None:
            found = self.cluster.partitions(TOPIC, watcher)[0].leader_id
            return found if found in self.others else None

        def coordinator() -> int | None:
            with self.client(watcher) as client:
                found = client.coordinator_of(self.offsets_group)
            return found if found in self.others else None

        def end() -> int | None:
            with self.client(new) as client:
                return max(0, client.send_list_offsets()().value)

        new = until(leader, "another leads")
        until(lambda: self._write(new, 1), "records are written to the new leader")
        self.end = until(end, "the new leader knows its end")
        until(lambda: self._commit(until(coordinator, "another coordinates"), 2 * RECORDS), "it is committed")


def stale(situation: Situation, answers: dict[str, Answer]) -> dict[str, Answer]:
    """Those answers that clients of the others could contradict."""
    known = {"ListOffsets": situation.end, "Fetch": situation.end, "OffsetFetch": 2 * RECORDS}
    return {
        asked: answer
        for asked, answer in answers.items()
        if answer.error == ErrorCode.NONE and answer.value < known.get(asked, 1 << 62)
    }


def test_a_leader_that_was_stopped_gives_no_old_answer_to_what_waits_in_its_sockets(tmp_path: Path) -> None:
    with cluster_of(tmp_path, *SETTINGS) as cluster:
        situation = Situation(cluster)
        clients = {
            asked: Client(cluster.address(situation.old))
            for asked in ("Produce", "ListOffsets", "Fetch", "OffsetFetch", "Heartbeat", "OffsetCommit")
        }

        cluster.nodes[situation.old].pause()
        try:
            situation.go_on_without()
            waiting = {
                "Produce": clients["Produce"].send_produce(1),
                "ListOffsets": clients["ListOffsets"].send_list_offsets(),
                "Fetch": clients["Fetch"].send_fetch(RECORDS),
                "OffsetFetch": clients["OffsetFetch"].send_offset_fetch(situation.offsets_group),
                "Heartbeat": clients["Heartbeat"].send_heartbeat(situation.member_group, situation.member),
                "OffsetCommit": clients["OffsetCommit"].send_commit(situation.offsets_group, 1),
            }
        finally:
            cluster.nodes[situation.old].resume()
        answers = {asked: answer() for asked, answer in waiting.items()}

        assert stale(situation, answers) == {}
        for client in clients.values():
            client.close()


def test_a_leader_that_is_cut_off_from_its_peers_gives_its_clients_no_old_answer(tmp_path: Path) -> None:
    with network_of(3) as network, cluster_of(tmp_path, *SETTINGS, network=network) as cluster:
        situation = Situation(cluster)
        with situation.client(situation.old) as poller:
            # It waits for records from before the cut until after it.
            poll = poller.send_fetch(RECORDS, max_wait_ms=8_000)
            network.cut_off(situation.old)
            situation.go_on_without()

            with situation.client(situation.old) as client:
                answers = {
                    "Produce": client.send_produce(1)(),
                    "ListOffsets": client.send_list_offsets()(),
                    "Fetch": client.send_fetch(RECORDS)(),
                    "OffsetFetch": client.send_offset_fetch(situation.offsets_group)(),
                    "Heartbeat": client.send_heartbeat(situation.member_group, situation.member)(),
                    "OffsetCommit": client.send_commit(situation.offsets_group, 1)(),
                    "Produce to all": client.send_produce(-1)(),
                }
            polled = poll()

        assert stale(situation, answers) == {}
        assert stale(situation, {"Fetch": polled}) == {}
