"""How many Python calls one request costs a node, from its bytes to its response.

In Python a call costs as much as the work that it wraps, so this figure says how long the way of
a request is; and unlike a time it is the same on every machine. A whole node runs on this thread,
and a client beside it sends one request at a time. Counted is every Python function that the
node's thread enters between the client's send and the arrival of the response; a sync that has to
end before the response may leave is part of it.

    calls     of functions in Penstock's files, comprehensions and lambdas included
    files     that those functions are in
    others    Python calls of anything else: generated codecs, constructors of named tuples, libraries

Functions written in C are not counted.

What a node does by itself now and then (ticks, sweeps) falls between some requests: of many
rounds the most frequent count is taken.

    python -m benchmarks.micro.calls --check            exit with 1 if a row of LIMITS is exceeded
    python -m benchmarks.micro.calls --show Produce     list the calls in order
"""

import argparse
import asyncio
import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import penstock
from penstock.client.connection import BrokerConnection
from penstock.core.model import NodeId
from penstock.core.protocol import ErrorCode, Message
from penstock.core.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsRequestTopic
from penstock.core.protocol.messages.fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic
from penstock.core.protocol.messages.find_coordinator import FindCoordinatorRequest
from penstock.core.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from penstock.core.protocol.messages.produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
)
from penstock.core.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from penstock.core.records import Record, write_batch
from penstock.node.node import NodeAddresses
from penstock.node.options import ListenerOptions, NodeOptions
from penstock.node.run import run_node
from penstock.runtime import Address

ROUNDS = 40
WARM_UP_ROUNDS = 20
READY_SECONDS = 20.0
TOPIC, GROUP = "calls", "calls"
OWN_FILES = str(Path(penstock.__file__).parent)
# The recorder's own calls.
NOT_THE_NODE = (__file__, threading.__file__)
# The last versions that name topics instead of numbering them.
VERSIONS_MAX = {0: 12, 1: 12}


class CallCount(NamedTuple):
    """The way of one request through the code."""

    calls: int
    files: int
    others: int


# No request may take more. Lower a row when its way has become shorter.
LIMITS = {
    # Eight of them are the seal of a round that no other follows.
    "Produce": CallCount(73, 21, 3),
    "Fetch": CallCount(44, 14, 3),
    "Fetch of nothing": CallCount(23, 9, 1),
    "JoinGroup": CallCount(66, 21, 13),
    # 19 of them count what a new group and its first member take.
    "JoinGroup, first": CallCount(134, 24, 16),
}


class CallRecorder:
    """Notes the functions that one thread enters while it is on; switched from another thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._entered: list[CodeType] = []

    def record(self, exchange: Callable[[], object]) -> list[CodeType]:
        """What the loop's thread enters during `exchange`, which runs on this thread."""
        self._entered = []
        self._on_loop(lambda: sys.setprofile(self._entering))
        exchange()
        self._on_loop(lambda: sys.setprofile(None))
        return [code for code in self._entered if code.co_filename not in NOT_THE_NODE]

    def _on_loop(self, act: Callable[[], object]) -> None:
        done = threading.Event()

        def call() -> None:
            act()
            done.set()

        self._loop.call_soon_threadsafe(call)
        assert done.wait(READY_SECONDS)

    def _entering(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            self._entered.append(frame.f_code)


class Requests:
    """A client that sends each kind of request again and again."""

    def __init__(self, address: tuple[str, int], recorder: CallRecorder) -> None:
        self._recorder = recorder
        versions = BrokerConnection(address)
        self._connection = BrokerConnection(address, versions={**versions.versions, **VERSIONS_MAX})
        versions.close()

    def record_all(self) -> dict[str, list[list[CodeType]]]:
        """The calls of every round, by kind of request."""
        self._create_topic()
        fetch_end = self._fetch(offset=WARM_UP_ROUNDS + ROUNDS)
        return {
            "Produce": self._rounds(self._produce()),
            "Fetch": self._rounds(self._fetch(offset=3)),
            "Fetch of nothing": self._rounds(fetch_end),
            "JoinGroup": self._rejoin(),
            "JoinGroup, first": self._join_new(),
        }

    def _rounds(self, frame: bytearray) -> list[list[CodeType]]:
        for _ in range(WARM_UP_ROUNDS):
            self._connection.exchange(frame)
        return [self._recorder.record(lambda: self._connection.exchange(frame)) for _ in range(ROUNDS)]

    def _create_topic(self) -> None:
        topic = CreateTopicsRequestTopic(
            name=TOPIC, num_partitions=1, replication_factor=1, assignments=(), configs=()
        )
        created = self._connection.ask(CreateTopicsRequest(topics=(topic,)))
        assert created.topics[0].error_code == ErrorCode.NONE, created

    def _produce(self) -> bytearray:
        """One record for one partition, with acks=all; a producer without an id."""
        batch = bytes(write_batch([Record(0, time.time_ns() // 1_000_000, None, b"v" * 100, ())]))
        part = ProduceRequestPartition(index=0, records=batch)
        topic = ProduceRequestTopic(name=TOPIC, partition_data=(part,))
        return self._connection.frame(ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=(topic,)))

    def _fetch(self, offset: int) -> bytearray:
        """One partition, without a session and without waiting."""
        part = FetchRequestPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
        topic = FetchRequestTopic(topic=TOPIC, partitions=(part,))
        return self._connection.frame(
            FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=(topic,), session_epoch=-1)
        )

    def _rejoin(self) -> list[list[CodeType]]:
        """The only member of a stable group joins once more, as after a change of its topics."""
        connection = self._connection
        self._await(FindCoordinatorRequest(coordinator_keys=(GROUP,)), lambda found: found.coordinators[0])
        member_id = connection.ask(self._join("")).member_id
        first = self._await(self._join(member_id), lambda joined: joined)
        assert first.member_id == member_id
        rounds = []
        for number in range(WARM_UP_ROUNDS + ROUNDS):
            generation_id = first.generation_id + number
            assignment = SyncGroupRequestAssignment(member_id=member_id, assignment=b"a")
            synced = connection.ask(
                SyncGroupRequest(
                    group_id=GROUP,
                    generation_id=generation_id,
                    member_id=member_id,
                    protocol_type="consumer",
                    protocol_name="range",
                    assignments=(assignment,),
                )
            )
            assert synced.error_code == ErrorCode.NONE, synced
            # What the node still does for the assignment, after its response, is not the next join's.
            connection.ask(FindCoordinatorRequest(coordinator_keys=(GROUP,)))
            frame = connection.frame(self._join(member_id))
            rounds.append(self._recorder.record(lambda frame=frame: connection.exchange(frame)))  # type: ignore[misc]
        return rounds[WARM_UP_ROUNDS:]

    def _join_new(self) -> list[list[CodeType]]:
        """The first member of a group that nobody waits for any longer."""
        rounds = []
        for number in range(WARM_UP_ROUNDS + ROUNDS):
            group_id = f"{GROUP}-{number}"
            member_id = self._connection.ask(self._join("", group_id)).member_id
            frame = self._connection.frame(self._join(member_id, group_id))
            rounds.append(self._recorder.record(lambda frame=frame: self._connection.exchange(frame)))  # type: ignore[misc]
        return rounds[WARM_UP_ROUNDS:]

    def _join(self, member_id: str, group_id: str = GROUP) -> JoinGroupRequest:
        return JoinGroupRequest(
            group_id=group_id,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=60_000,
            member_id=member_id,
            protocol_type="consumer",
            protocols=(JoinGroupRequestProtocol(name="range", metadata=b"m"),),
        )

    def _await(self, request: Message, part: Callable[[Any], Any]) -> Any:
        """Ask until there is no error: a group's log takes a moment to be made."""
        deadline = time.monotonic() + READY_SECONDS
        while True:
            answer = self._connection.ask(request)
            if part(answer).error_code == ErrorCode.NONE:
                return answer
            assert time.monotonic() < deadline, answer


def record() -> dict[str, list[CodeType]]:
    """The calls of each kind of request, in order. Runs a node on this thread, which must be the main one."""
    rounds: dict[str, list[list[CodeType]]] = {}
    client: threading.Thread | None = None

    def ready(addresses: NodeAddresses) -> None:
        nonlocal client
        (address,) = addresses.kafka.values()
        recorder = CallRecorder(asyncio.get_running_loop())

        def run_client() -> None:
            try:
                rounds.update(Requests((address.host, address.port), recorder).record_all())
            finally:
                os.kill(os.getpid(), signal.SIGTERM)

        client = threading.Thread(target=run_client)
        client.start()

    with tempfile.TemporaryDirectory(prefix="penstock-calls-") as directory:
        listener = ListenerOptions(Address("127.0.0.1", 0))
        options = NodeOptions(
            str(Path(directory) / "data"),
            NodeId(1),
            (listener,),
            static={"group.initial.rebalance.delay.ms": "0"},
        )
        run_node(options, ready)
    assert client is not None
    client.join()
    return {kind: _usual(found) for kind, found in rounds.items()}


def _usual(rounds: list[list[CodeType]]) -> list[CodeType]:
    """The round that came most often: in the others the node did something for itself as well."""
    usual, _ = Counter(len(calls) for calls in rounds).most_common(1)[0]
    return next(calls for calls in rounds if len(calls) == usual)


def count(calls: list[CodeType]) -> CallCount:
    own = [code.co_filename for code in calls if code.co_filename.startswith(OWN_FILES)]
    return CallCount(calls=len(own), files=len(frozenset(own)), others=len(calls) - len(own))


def run() -> dict[str, float]:
    """Every figure, for the report of all micro-benchmarks."""
    return {
        f"{kind.lower().replace(' ', '_')}_{name}": float(value)
        for kind, calls in record().items()
        for name, value in count(calls)._asdict().items()
    }


def exceeded(found: dict[str, CallCount]) -> list[str]:
    """A line for every limit that is not kept."""
    return [
        f"{kind}: {value} {name}, at most {limit}"
        for kind, limits in LIMITS.items()
        for name, value, limit in zip(CallCount._fields, found[kind], limits, strict=True)
        if value > limit
    ]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.micro.calls", description=__doc__)
    parser.add_argument("--check", action="store_true", help="exit with 1 if a limit is exceeded")
    parser.add_argument("--show", choices=LIMITS, help="list the calls of one kind of request")
    parser.add_argument("--json", action="store_true", help="print the counts as JSON")
    arguments = parser.parse_args()
    recorded = record()
    found = {kind: count(calls) for kind, calls in recorded.items()}
    if arguments.show:
        for code in recorded[arguments.show]:
            print(f"{code.co_filename.rpartition('penstock/')[2]}:{code.co_firstlineno} {code.co_qualname}")
    if arguments.json:
        print(json.dumps({kind: counted._asdict() for kind, counted in found.items()}))
    else:
        for kind, counted in found.items():
            print(f"{kind:18} {counted.calls:4} calls in {counted.files:2} files, {counted.others:2} others")
    broken = exceeded(found) if arguments.check else []
    for line in broken:
        print(line, file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
