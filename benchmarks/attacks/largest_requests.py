"""The largest legal request of every API, and for how long each of them holds a node's loop.

Requests are built from the message table, so that an API that is added tomorrow is attacked as well.
Of each array in a request there is one shape in which that array is as long as the limits of the API
allow (`server.kafka.request_limits`), and the others are as short as they can be. Each shape is filled in
several ways:

    empty      empty names, zero ids
    repeated   one topic that exists, again and again
    existing   topics, partitions and groups that exist, each once as long as there are enough of them
    unknown    short names that do not exist, each another
    longest    long names that do not exist
    whole      as existing, and what may be left out is: everything of each
    groups     as whole, of groups where there are several kinds of resources

Besides, every string and every field of bytes is tried with one value that is as long as the request may be
(huge).

A node of its own process serves them, one at a time. Beside them its loop calls itself in every turn and
notes the longest turn, in CPU time: that is how long every other client waited.

    python -m benchmarks.attacks.largest_requests                      every API in its last version
    python -m benchmarks.attacks.largest_requests --api Metadata --every-version
    python -m benchmarks.attacks.largest_requests --bytes 1000000      frames of that size
"""

import argparse
import asyncio
import json
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from penstock.core.protocol import APIS, Api, Message, RequestHeader, read_response_header, request_frame
from penstock.core.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsRequestTopic
from penstock.core.protocol.messages.find_coordinator import FindCoordinatorRequest
from penstock.core.protocol.messages.metadata import MetadataRequest
from penstock.core.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.core.protocol.messages.produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
)
from penstock.core.protocol.schema import (
    ZERO_UUID,
    ArrayOf,
    Field,
    FixedType,
    Part,
    PartOf,
    Schema,
    SizedType,
    WireType,
)
from penstock.core.records import Record, write_batch

FILLS = ("empty", "repeated", "existing", "unknown", "longest", "whole", "groups")
HUGE = "huge"
LONG_NAME_CHARS = 249
# A few topics, one of them with many partitions; groups have the names of topics.
TOPICS, PARTITIONS = 500, 2_000
GROUPS = 100
ANSWER_SECONDS = 180.0
# What a field must be for a request to get as far as it can.
VALUES: dict[str, Any] = {
    "acks": -1,
    "action": 0,
    "allow_auto_topic_creation": False,
    "bytes_max": 1 << 20,
    "config_operation": 0,
    "count": 4,
    "current_leader_epoch": -1,
    "election_type": 0,
    "include_authorized_operations": True,
    "include_cluster_authorized_operations": True,
    "include_documentation": True,
    "include_synonyms": True,
    "include_topic_authorized_operations": True,
    "key_type": 0,
    "leader_epoch": -1,
    "committed_leader_epoch": -1,
    "generation_id_or_member_epoch": -1,
    "generation_id": -1,
    "max_bytes": 50 << 20,
    "max_wait_ms": 0,
    "min_bytes": 1,
    "num_partitions": 1,
    "partition_max_bytes": 1 << 20,
    "producer_id": 7,
    "protocol_type": "consumer",
    "rebalance_timeout_ms": 10_000,
    "records_max": 10,
    "replica_id": -1,
    "replica_state": None,
    "replication_factor": 1,
    "resource_type": 2,
    "response_partition_limit": 2_000,
    "retention_time_ms": -1,
    "session_epoch": -1,
    "session_timeout_ms": 10_000,
    "share_session_epoch": 0,
    "timeout_ms": 5_000,
    "timestamp": -1,
    "validate_only": False,
    "wait_ms": 0,
}
# What is different in one of the ways.
VALUES_OF_FILL: dict[str, dict[str, Any]] = {"groups": {"resource_type": 32}}
# Long lengths came with flexible versions.
SHORT_STRING_MAX = 32_767
# Where a request may have any size.
HUGE_BYTES_MAX = 16 << 20
PARTITION_FIELDS = (
    "partition",
    "partition_index",
    "partition_indexes",
    "partitions",
    "index",
    "partition_id",
)
BATCH = bytes(write_batch([Record(0, 1_700_000_000_000, None, b"v", ())]))


class ArrayPath(NamedTuple):
    """An array of a message: the names of the fields that lead to it."""

    fields: tuple[str, ...]

    def __str__(self) -> str:
        return ".".join(self.fields) or "-"


def arrays_of(schema: Schema, version: int, above: tuple[str, ...] = ()) -> Iterator[ArrayPath]:
    """Every array of a message, those in tagged fields too."""
    for field in schema.fields:
        if not field.is_in(version):
            continue
        path, wire_type = (*above, field.name), field.type
        if isinstance(wire_type, ArrayOf):
            yield ArrayPath(path)
            wire_type = wire_type.element
        if isinstance(wire_type, PartOf):
            yield from arrays_of(wire_type.part.__schema__, version, path)


def texts_of(schema: Schema, version: int, above: tuple[str, ...] = ()) -> Iterator[ArrayPath]:
    """Every field of text or bytes, but records."""
    for field in schema.fields:
        if not field.is_in(version):
            continue
        path, wire_type = (*above, field.name), field.type
        if isinstance(wire_type, ArrayOf):
            wire_type = wire_type.element
        if isinstance(wire_type, PartOf):
            yield from texts_of(wire_type.part.__schema__, version, path)
        elif wire_type in (SizedType.STRING, SizedType.BYTES):
            yield ArrayPath(path)


class RequestBuilder:
    """Builds one request: `count` elements in the array at `path`, filled in one of the ways of FILLS."""

    def __init__(
        self, api: Api, version: int, path: ArrayPath, fill: str, topic_ids: tuple[UUID, ...] = ()
    ) -> None:
        self._api = api
        self._version = version
        self._path = path.fields
        self._fill = fill
        self._topic_ids = topic_ids
        self._values = VALUES | VALUES_OF_FILL.get(fill, {})
        self._number = 0

    def build(self, count: int) -> Message:
        self._number = 0
        self._count = count
        found: Message = self._part(self._api.request, ())
        return found

    def _part(self, kind: type[Part], above: tuple[str, ...]) -> Any:
        values = {
            field.name: self._field(field, (*above, field.name))
            for field in kind.__schema__.fields
            if field.is_in(self._version)
        }
        return kind(**values)

    def _field(self, field: Field, path: tuple[str, ...]) -> Any:
        if isinstance(field.type, ArrayOf):
            return self._array(field, field.type.element, path)
        if isinstance(field.type, PartOf):
            leads_there = self._path[: len(path)] == path
            if field.is_nullable_in(self._version) and not leads_there:
                return None
            return self._part(field.type.part, path)
        if self._fill == HUGE and path == self._path:
            return self._huge(field.type)
        if field.name in self._values:
            return self._values[field.name]
        if field.nullable and field.history.default is None:
            return None
        return self._value(field.type, field.name)

    def _array(self, field: Field, element: WireType, path: tuple[str, ...]) -> Any:
        is_huge = self._fill == HUGE
        count = self._count if path == self._path and not is_huge else 1
        if self._is_left_out(field, path):
            return None
        if self._path[: len(path)] != path and path[: len(self._path)] != self._path:
            if field.history.tag is not None:
                return field.default
            count = 0
        made = []
        for _ in range(count):
            if path == self._path:
                self._number += 1
            if isinstance(element, PartOf):
                made.append(self._part(element.part, path))
            else:
                is_value = is_huge and path == self._path
                made.append(self._huge(element) if is_value else self._value(element, field.name))
        return tuple(made)

    def _is_left_out(self, field: Field, path: tuple[str, ...]) -> bool:
        """Whether an array is null: it is beside the way, or everything is asked for by that."""
        if not field.is_nullable_in(self._version):
            return False
        is_below = path[: len(self._path)] == self._path
        if is_below and path != self._path:
            return self._fill in ("whole", "groups")
        return self._path[: len(path)] != path and not is_below

    def _huge(self, wire_type: WireType) -> Any:
        is_flexible = self._version >= self._api.flexible_from
        if wire_type is SizedType.STRING:
            return "h" * (self._count if is_flexible else min(self._count, SHORT_STRING_MAX))
        return bytes(self._count)

    def _value(self, wire_type: WireType, name: str) -> Any:
        match wire_type:
            case FixedType.UUID:
                return self._uuid()
            case FixedType.BOOL:
                return False
            case FixedType.FLOAT64:
                return 1.0
            case FixedType():
                is_partition = name in PARTITION_FIELDS
                return self._number % self._partitions if is_partition else 0
            case SizedType.STRING:
                return self._name()
            case SizedType.RECORDS:
                return BATCH
            case _:
                return b""

    @property
    def _partitions(self) -> int:
        known = {"empty": 1, "repeated": 1, "existing": PARTITIONS, "whole": PARTITIONS}
        return known.get(self._fill, 1 << 30)

    def _uuid(self) -> UUID:
        if self._fill in ("existing", "repeated", "whole") and self._topic_ids:
            return self._topic_ids[self._number % len(self._topic_ids) if self._fill != "repeated" else 0]
        return ZERO_UUID if self._fill == "empty" else UUID(int=self._number + 1)

    def _name(self) -> str:
        match self._fill:
            case "empty":
                return ""
            case "repeated":
                return "t0"
            case "existing" | "whole":
                return f"t{self._number % (len(self._topic_ids) or 1)}"
            case "unknown" | "groups":
                return f"u{self._number:x}"
            case _:
                return f"{self._number:x}".ljust(LONG_NAME_CHARS, "l")


@dataclass(frozen=True, slots=True)
class LargestRequest:
    """A frame, and how it was made."""

    api: Api
    version: int
    path: ArrayPath
    fill: str
    entries: int
    frame: bytes

    @property
    def name(self) -> str:
        return f"{self.api.name} v{self.version} {self.path} {self.fill}"


def largest(
    builder: RequestBuilder, api: Api, version: int, bytes_max: int, entries_max: int
) -> tuple[int, bytes]:
    """The longest request within the limits: how many entries it has, and its frame."""
    header = RequestHeader(api.key, version, 7, "attack")

    def made(count: int) -> tuple[int, bytearray]:
        request = builder.build(count)
        return entries_of(request, version), request_frame(api, header, request)

    (few_entries, few), (more_entries, more) = made(1_000), made(2_000)
    bytes_each = max((len(more) - len(few)) / 1_000, 0.001)
    entries_each = max((more_entries - few_entries) / 1_000, 1)
    # Varints and numbers grow a little: some bytes are left over.
    count = int(min((bytes_max * 0.95 - 200) / bytes_each, (entries_max - 10) / entries_each))
    while True:
        entries, frame = made(max(count, 1))
        if len(frame) - 4 <= bytes_max and entries <= entries_max:
            return entries, bytes(frame)
        count = int(count * 0.9)


def entries_of(part: Any, version: int) -> int:
    """How many elements all arrays of a message have together."""
    total = 0
    for field in part.__schema__.fields:
        value = getattr(part, field.name)
        if not field.is_in(version) or value is None:
            continue
        if isinstance(field.type, ArrayOf):
            total += len(value)
            if isinstance(field.type.element, PartOf):
                total += sum(entries_of(each, version) for each in value)
        elif isinstance(field.type, PartOf):
            total += entries_of(value, version)
    return total


def largest_requests(
    api: Api,
    version: int,
    bytes_max: int,
    entries_max: int,
    *,
    fills: tuple[str, ...] = FILLS,
    topic_ids: tuple[UUID, ...] = (),
) -> Iterator[LargestRequest]:
    """The requests of one API in one version."""
    for path in arrays_of(api.request.__schema__, version):
        for fill in fills:
            builder = RequestBuilder(api, version, path, fill, topic_ids)
            entries, frame = largest(builder, api, version, bytes_max, entries_max)
            yield LargestRequest(api, version, path, fill, entries, frame)


def huge_requests(api: Api, version: int, bytes_max: int) -> Iterator[LargestRequest]:
    """One value that is as long as the request may be, in each field in turn."""
    header = RequestHeader(api.key, version, 7, "attack")
    for path in texts_of(api.request.__schema__, version):
        request = RequestBuilder(api, version, path, HUGE).build(bytes_max - 2_000)
        yield LargestRequest(api, version, path, HUGE, 1, bytes(request_frame(api, header, request)))


class Measured(NamedTuple):
    """What one request cost the node."""

    name: str
    entries: int
    frame_bytes: int
    # The number of bytes of the response, or -1 if the node closed the connection.
    answer_bytes: int
    seconds: float
    longest_turn_ms: float
    cpu_ms: float
    peak_mb: float


class AttackedNode:
    """A node in a process of its own, whose loop notes its longest turn."""

    def __init__(self, directory: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.attacks.largest_requests", "--node", directory],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.address: tuple[str, int] = ("127.0.0.1", int(self._line()))
        self.topic_ids: tuple[UUID, ...] = ()

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the node has ended"
        return line

    def reset(self) -> dict[str, float]:
        """What the loop noted since the last call."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        found: dict[str, float] = json.loads(self._line())
        return found

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()

    def prepare(self) -> None:
        """Create topics with records, and groups, for the requests to find."""
        connection = socket.create_connection(self.address, ANSWER_SECONDS)
        topics = tuple(
            CreateTopicsRequestTopic(
                name=f"t{number}",
                num_partitions=PARTITIONS if not number else 1,
                replication_factor=1,
                assignments=(),
                configs=(),
            )
            for number in range(TOPICS)
        )
        exchange(connection, CreateTopicsRequest(topics=topics, timeout_ms=120_000), 7)
        found = exchange(connection, MetadataRequest(topics=None), 12)
        ids = {topic.name: topic.topic_id for topic in found.topics}
        self.topic_ids = tuple(ids[f"t{number}"] for number in range(TOPICS))
        # Something small in every partition, for a fetch of all of them.
        parts = tuple(ProduceRequestPartition(index=index, records=BATCH) for index in range(PARTITIONS))
        written = ProduceRequestTopic(name="t0", partition_data=parts)
        request = ProduceRequest(transactional_id=None, acks=-1, timeout_ms=60_000, topic_data=(written,))
        exchange(connection, request, 9)
        place = OffsetCommitRequestPartition(
            partition_index=0, committed_offset=0, committed_metadata=None, committed_leader_epoch=-1
        )
        for group in range(GROUPS):
            commit = OffsetCommitRequest(
                group_id=f"t{group}",
                generation_id_or_member_epoch=-1,
                member_id="",
                topics=(OffsetCommitRequestTopic(name="t0", partitions=(place,)),),
            )
            while True:
                exchange(connection, FindCoordinatorRequest(coordinator_keys=(f"t{group}",)), 4)
                answer = exchange(connection, commit, 8)
                if answer.topics[0].partitions[0].error_code == 0:
                    break
                time.sleep(0.05)
        connection.close()

    def measure(self, attack: LargestRequest) -> Measured:
        connection = socket.create_connection(self.address, ANSWER_SECONDS)
        self.reset()
        began = time.monotonic()
        answer = send(connection, attack.frame)
        seconds = time.monotonic() - began
        connection.close()
        noted = self.reset()
        return Measured(
            attack.name,
            attack.entries,
            len(attack.frame),
            -1 if answer is None else len(answer),
            seconds,
            noted["longest_turn_ms"],
            noted["cpu_ms"],
            noted["peak_mb"],
        )


def send(connection: socket.socket, frame: bytes) -> bytes | None:
    """The response, or None if the node closes the connection; also if it says nothing for long."""
    try:
        connection.sendall(frame)
        size = _receive(connection, 4)
        return None if size is None else _receive(connection, struct.unpack(">i", size)[0])
    except OSError:
        return None


def _receive(connection: socket.socket, count: int) -> bytes | None:
    found = bytearray()
    while len(found) < count:
        piece = connection.recv(min(count - len(found), 1 << 20))
        if not piece:
            return None
        found += piece
    return bytes(found)


def exchange(connection: socket.socket, request: Message, version: int) -> Any:
    """A request of ours, and its response."""
    key = request.__schema__.api_key
    assert key is not None
    api = APIS[key]
    answer = send(connection, bytes(request_frame(api, RequestHeader(key, version, 1, "attack"), request)))
    assert answer is not None, f"no response to {api.name}"
    _, position = read_response_header(api, version, answer)
    return api.response.decode(answer, version, position)


def serve(directory: str) -> None:
    """Be the node: print the port, and for each line on stdin a line with what the loop noted."""
    import resource
    import signal

    from penstock.core.model import NodeId
    from penstock.node.node import NodeAddresses
    from penstock.node.options import ListenerOptions, NodeOptions
    from penstock.node.run import run_node
    from penstock.runtime import Address

    def ready(addresses: NodeAddresses) -> None:
        loop = asyncio.get_running_loop()
        noted = {"longest": 0.0, "last": time.thread_time(), "cpu": time.process_time()}

        def turn() -> None:
            now = time.thread_time()
            noted["longest"] = max(noted["longest"], now - noted["last"])
            noted["last"] = now
            loop.call_soon(turn)

        def report() -> None:
            sys.stdin.readline()
            cpu = time.process_time()
            print(
                json.dumps(
                    {
                        "longest_turn_ms": noted["longest"] * 1_000,
                        "cpu_ms": (cpu - noted["cpu"]) * 1_000,
                        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1_000,
                    }
                ),
                flush=True,
            )
            noted["longest"], noted["cpu"] = 0.0, cpu

        loop.add_reader(sys.stdin, report)
        turn()
        (address,) = addresses.kafka.values()
        print(address.port, flush=True)

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    options = NodeOptions(
        str(Path(directory) / "data"),
        NodeId(1),
        (ListenerOptions(Address("127.0.0.1", 0)),),
        static={"group.initial.rebalance.delay.ms": "0"},
    )
    run_node(options, ready)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.attacks.largest_requests",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--node", help=argparse.SUPPRESS)
    parser.add_argument("--api", nargs="*", help="only these APIs, by name")
    parser.add_argument("--fill", nargs="*", choices=(*FILLS, HUGE), default=(*FILLS, HUGE))
    parser.add_argument("--every-version", action="store_true", help="not only the last one of each API")
    parser.add_argument("--bytes", type=int, help="frames of this size, whatever the API's limits are")
    parser.add_argument("--entries", type=int, default=1 << 30, help="with --bytes: at most so many entries")
    parser.add_argument("--worst", action="store_true", help="one line for each API: the longest turn")
    parser.add_argument("--json", help="write all figures to this file")
    arguments = parser.parse_args()
    if arguments.node:
        serve(arguments.node)
        return 0
    found: list[Measured] = []
    with tempfile.TemporaryDirectory(prefix="penstock-largest-") as directory:
        node = AttackedNode(directory)
        try:
            node.prepare()
            for api, version, bytes_max, entries_max in _wanted(arguments):
                attacks = largest_requests(
                    api,
                    version,
                    bytes_max,
                    entries_max,
                    fills=tuple(fill for fill in arguments.fill if fill != HUGE),
                    topic_ids=node.topic_ids,
                )
                huge = huge_requests(api, version, min(bytes_max, HUGE_BYTES_MAX))
                rows = [
                    node.measure(attack) for attack in chain(attacks, huge if HUGE in arguments.fill else ())
                ]
                found += rows
                if arguments.worst:
                    rows = sorted(rows, key=lambda row: row.longest_turn_ms)[-1:]
                for row in rows:
                    _print(row)
        finally:
            node.close()
    if arguments.json:
        Path(arguments.json).write_text(json.dumps([row._asdict() for row in found], indent=1))
    return 0


def _wanted(arguments: argparse.Namespace) -> Iterator[tuple[Api, int, int, int]]:
    from penstock.server.kafka.handlers import every_route

    for route in every_route().all():
        api = route.api
        if arguments.api and api.name not in arguments.api:
            continue
        versions = api.versions if arguments.every_version else api.versions[-1:]
        for version in versions:
            if arguments.bytes:
                yield api, version, arguments.bytes, arguments.entries
            else:
                from penstock.server.kafka.request_limits import limit_of

                limit = limit_of(api)
                yield api, version, limit.bytes_max, limit.entries_max


def _print(row: Measured) -> None:
    answered = "closed" if row.answer_bytes < 0 else f"{row.answer_bytes:,} B"
    print(
        f"{row.name:70} {row.entries:9,} entries {row.frame_bytes:11,} B"
        f" turn {row.longest_turn_ms:9.1f} ms  cpu {row.cpu_ms:9.1f} ms"
        f"  {row.seconds:7.2f} s  peak {row.peak_mb:6.0f} MB  {answered}",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
