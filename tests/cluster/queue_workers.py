"""Workers of queue groups over every protocol, which go on when nodes do not.

Each works in a thread of its own until the run ends: it takes a few records, acknowledges most of them, gives
some back, and keeps some for longer than a lease, which it renews or forgets to renew. All of that it writes
to the journal. A worker that loses its node goes to the next one. What it had then, and had not settled for
certain, it tries to acknowledge once more.
"""

import asyncio
import base64
import json
import random
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import grpc
import httpx
from confluent_kafka import AcknowledgeType, KafkaException, ShareConsumer

from penstock.client.connection import BrokerAddress
from penstock.client.endpoint import ClientError
from penstock.client.websocket import WebSocketClient
from penstock.core.model import MILLISECOND
from penstock.core.protocol import ErrorCode
from penstock.sim.checkers.queues import SettleAction
from penstock.v1 import penstock_pb2 as proto
from penstock.v1.penstock_pb2_grpc import PenstockStub
from tests.cluster.queue_journal import Held, QueueJournal, Received
from tests.support import share_consumer
from tests.support.share_consumer import WireShareConsumer

ACKNOWLEDGE, RELEASE, RENEW = SettleAction.ACKNOWLEDGE, SettleAction.RELEASE, SettleAction.RENEW
AT_ONCE = 8
WAIT_MS = 500
REQUEST_SECONDS = 10.0
PAUSE_SECONDS = 0.05
RELEASES, KEEPS, FORGETS = 0.06, 0.03, 0.5
# What comes again is kept more often: whoever had it before may still acknowledge it, and must not.
KEEPS_AGAIN = 0.4
KEPT_MAX = 3
# When a lease is renewed, and when its record is finished, in leases since it came.
RENEWED_AFTER, FINISHED_AFTER = 0.5, 1.3
SESSION_MS = 60_000
# The refusal that says for certain that a receipt does not count any more. Others leave it open.
REFUSED = ErrorCode.INVALID_RECORD_STATE.name
HTTP_OK = 200
# For each record whether what was said of it counts; None: nobody knows.
Outcomes = Sequence[bool | None]


class NodeAddresses(NamedTuple):
    """Where a node is, in all protocols."""

    kafka: BrokerAddress
    http: str
    grpc: str


class QueueWorker(ABC):
    """One worker of one group; subclasses speak a protocol."""

    # What a connection raises that is lost or refused.
    losses: ClassVar[tuple[type[Exception], ...]]
    # Whether the server gives records back that a worker has when it loses the connection.
    gives_back: ClassVar[bool] = False
    # Whether it has some records for longer than a lease.
    keeps_some: ClassVar[bool] = True
    # How long others wait for what it gives back.
    delays_ms: ClassVar[Sequence[int]] = (0, 100)
    # Whether a receipt says which delivery is meant, also when the worker comes back with it.
    has_receipts: ClassVar[bool] = True

    def __init__(
        self, name: str, group: str, journal: QueueJournal, nodes: Sequence[NodeAddresses], lease_ms: int
    ) -> None:
        self.name, self.group = name, group
        self.journal, self.nodes, self.lease_ms = journal, nodes, lease_ms
        self.luck = random.Random(name)
        self._turn = self.luck.randrange(len(nodes))
        # What it has, and has not settled for certain.
        self.held: dict[str, Held] = {}
        # What takes long, and whether its lease is to be renewed.
        self._kept: dict[Held, bool] = {}
        # Whether its connection ends though its server does not: then that gives back at any moment.
        self.is_interrupted = False
        self._deserts_at: int | None = None
        self._thread = threading.Thread(target=self._run, name=name)

    def deserting_after(self, deliveries: int) -> "QueueWorker":
        """A worker that goes away for good, without a word, when it has had so many deliveries."""
        self._deserts_at = deliveries
        return self

    def start(self) -> None:
        self._thread.start()

    def join(self) -> None:
        self._thread.join()

    def stop(self) -> None:
        """Wait for its end, if it has begun at all, after the run has ended."""
        if self._thread.is_alive():
            self.interrupt()
            self.join()

    @property
    def node(self) -> NodeAddresses:
        return self.nodes[self._turn % len(self.nodes)]

    @property
    def topic(self) -> str:
        return self.journal.topic

    # A protocol.

    @abstractmethod
    def connect(self) -> None: ...

    @abstractmethod
    def receive(self) -> tuple[int, Iterable[Received]]:
        """When it was asked for them, and some records."""

    @abstractmethod
    def settle(self, held: Sequence[Held], action: SettleAction, delay_ms: int) -> Outcomes: ...

    @abstractmethod
    def hang_up(self) -> None:
        """Lose the connection, as a process does that is killed."""

    def leave(self) -> None:
        """End in order."""
        self.hang_up()

    def interrupt(self) -> None:  # noqa: B027 - most waits have an end
        """End a wait that has none; from another thread."""

    # What it does.

    def _run(self) -> None:
        while not self.journal.ended.is_set():
            try:
                self.connect()
                self._repeat()
                if self._work():
                    return
            except self.losses:
                self._lose()
        self.leave()

    def _work(self) -> bool:
        """Take and settle records until the end; True if it deserts."""
        while not self.journal.ended.is_set():
            asked, records = self.receive()
            held = self.journal.got(self.name, self.group, asked, self.lease_ms, records)
            self.held |= {each.record.receipt: each for each in held}
            if not self.has_receipts:
                self._give_up_older(held)
            if self._deserts_at is not None and self.journal.delivered[self.name] >= self._deserts_at:
                self.desert()
                return True
            self._handle(held)
            self._tend()
        return False

    def desert(self) -> None:
        self.hang_up()
        if self.gives_back:
            self.journal.gone(self.held.values())

    def _lose(self) -> None:
        """Go to another node; what is unsettled may have been given back."""
        self.journal.interruptions[self.name] += 1
        self.hang_up()
        self.is_interrupted = False
        self._kept.clear()
        if self.gives_back:
            self.journal.gone(self.held.values())
        if not self.has_receipts:
            self.held.clear()
        self._turn += 1
        self.journal.ended.wait(PAUSE_SECONDS)

    def _repeat(self) -> None:
        """Acknowledge what is left from the last connection: whoever comes back may still do that."""
        left, self.held = list(self.held.values()), {}
        if left:
            self._say(left, ACKNOWLEDGE)

    def _handle(self, held: Sequence[Held]) -> None:
        released: list[Held] = []
        done: list[Held] = []
        for each in held:
            fate = 1.0 if self.journal.draining.is_set() else self.luck.random()
            keeps = 0.0 if not self.keeps_some else KEEPS if each.record.attempt == 1 else KEEPS_AGAIN
            if fate < RELEASES:
                released.append(each)
            elif fate < RELEASES + keeps and len(self._kept) < KEPT_MAX:
                self._kept[each] = self.luck.random() >= FORGETS
            else:
                done.append(each)
        self._say(released, RELEASE, self.luck.choice(self.delays_ms))
        if self.luck.random() < 1 / 2:
            self._say(done, ACKNOWLEDGE)
        else:
            for each in done:
                self._say([each], ACKNOWLEDGE)

    def _give_up_older(self, held: Sequence[Held]) -> None:
        """What is said of a record counts for its last delivery to this worker: so nothing of others."""
        places = {(each.record.partition, each.record.offset) for each in held}
        for each in list(self._kept):
            if (each.record.partition, each.record.offset) in places:
                del self._kept[each]

    def _tend(self) -> None:
        """Renew the leases of what is kept, and finish it when its time has come."""
        now = time.monotonic_ns()
        for held, is_renewed in list(self._kept.items()):
            leases = (now - held.got) / held.lease_ns
            if leases > FINISHED_AFTER or self.journal.draining.is_set():
                del self._kept[held]
                self._say([held], ACKNOWLEDGE)
            elif leases > RENEWED_AFTER and is_renewed:
                self._kept[held] = False
                self._say([held], RENEW)

    def _say(self, held: Sequence[Held], action: SettleAction, delay_ms: int = 0) -> None:
        if not held:
            return
        words = self.journal.says(held, action, delay_ms if action is RELEASE else None)
        outcomes = self.settle(held, action, delay_ms)
        for word, granted in zip(words, outcomes, strict=True):
            if granted is not None:
                self.journal.told(word, granted)
                if not granted and self.is_interrupted:
                    self.journal.gone([word.held])
                if action is not RENEW or not granted:
                    self.held.pop(word.held.record.receipt, None)


class RestRefused(Exception):
    """The server could not do what it was asked for."""


class RestWorker(QueueWorker):
    """Joins its group over REST, and polls."""

    losses = (httpx.HTTPError, RestRefused)

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._client = httpx.Client()

    def connect(self) -> None:
        self._client = httpx.Client(
            base_url=f"{self.node.http}/v1/groups/{self.group}", timeout=REQUEST_SECONDS
        )
        body = {"member_id": self.name, "topics": [self.topic], "session_timeout_ms": SESSION_MS}
        self._answer(self._client.post("/join", json=body))

    def receive(self) -> tuple[int, Iterable[Received]]:
        asked = time.monotonic_ns()
        query: dict[str, str | int] = {
            "member_id": self.name, "max": AT_ONCE, "wait_ms": WAIT_MS, "lease_ms": self.lease_ms
        }  # fmt: skip
        answer = self._answer(self._client.get("/poll", params=query))
        return asked, [
            Received(each["partition"], each["offset"], value_of(each), each["attempt"], each["receipt"])
            for each in answer["messages"]
        ]

    def settle(self, held: Sequence[Held], action: SettleAction, delay_ms: int) -> Outcomes:
        path = {ACKNOWLEDGE: "/ack", RELEASE: "/nack", RENEW: "/renew"}[action]
        body: dict[str, Any] = {"receipts": [each.record.receipt for each in held]}
        if action is RELEASE:
            body["delay_ms"] = delay_ms
        answer = self._client.post(path, json=body)
        said = answer.json()
        if "results" in said:
            return [_outcome(each.get("error")) for each in said["results"]]
        if len(held) == 1:
            return [_outcome(said)]
        raise RestRefused(answer.text)

    def hang_up(self) -> None:
        self._client.close()

    @staticmethod
    def _answer(answer: httpx.Response) -> Any:
        if answer.status_code != HTTP_OK:
            raise RestRefused(answer.text)
        return answer.json()


class WebSocketWorker(QueueWorker):
    """Dequeues over a WebSocket, in binary frames."""

    losses = (ClientError, TimeoutError)

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._runner = asyncio.Runner()
        self._client: WebSocketClient | None = None

    def connect(self) -> None:
        url = self.node.http.replace("http", "ws", 1)
        self._client = self._runner.run(
            WebSocketClient.connect(url, consumer=self.name, seconds=REQUEST_SECONDS)
        )

    def receive(self) -> tuple[int, Iterable[Received]]:
        asked = time.monotonic_ns()
        reply = self._ask(
            "dequeue",
            topic=self.topic,
            group=self.group,
            max=AT_ONCE,
            wait_ms=WAIT_MS,
            lease_ms=self.lease_ms,
        )
        return asked, [
            Received(each["partition"], each["offset"], each["value"], each["attempt"], each["receipt"])
            for each in reply["messages"]
        ]

    def settle(self, held: Sequence[Held], action: SettleAction, delay_ms: int) -> Outcomes:
        op = {ACKNOWLEDGE: "ack", RELEASE: "nack", RENEW: "renew"}[action]
        more = {"delay_ms": delay_ms} if action is RELEASE else {}
        reply = self._ask(op, group=self.group, receipts=[each.record.receipt for each in held], **more)
        errors = {each["index"]: each for each in reply["errors"]}
        return [_outcome(errors.get(index)) for index in range(len(held))]

    def hang_up(self) -> None:
        if self._client is not None:
            # Not a close: that would give back what it has.
            self._client._connection.transport.abort()
            self._runner.run(self._client.close())
            self._client = None

    def desert(self) -> None:
        super().desert()
        self._runner.close()

    def leave(self) -> None:
        self.hang_up()
        self._runner.close()

    def _ask(self, op: str, **fields: Any) -> dict[str, Any]:
        async def ask(client: WebSocketClient) -> dict[str, Any]:
            async with asyncio.timeout(REQUEST_SECONDS):
                return await client.ask(op, **fields)

        assert self._client is not None
        return self._runner.run(ask(self._client))


class GrpcWorker(QueueWorker):
    """Reads a stream of Subscribe, and settles beside it.

    The stream asks for records by itself. But at most `AT_ONCE` may be unsettled, so it asks for the n-th one
    after all but `AT_ONCE` of those before were settled, or their leases had ended.
    """

    losses = (grpc.RpcError,)
    gives_back = True

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._channel: Any = None
        self._stub: Any = None
        self._stream: Any = None
        self._began = 0
        self._room_at: dict[str, int] = {}

    def connect(self) -> None:
        # Beside the first connection attempt no other waits: the next one is to another node.
        self._channel = grpc.insecure_channel(self.node.grpc, (("grpc.use_local_subchannel_pool", 1),))
        self._stub = PenstockStub(self._channel)  # type: ignore[no-untyped-call]
        self._began = time.monotonic_ns()
        self._room_at = {}
        self._stream = self._stub.Subscribe(
            proto.SubscribeRequest(
                topics=[self.topic],
                group=self.group,
                consumer=self.name,
                max_in_flight=AT_ONCE,
                batch_max=AT_ONCE,
                lease_ms=self.lease_ms,
            )
        )

    def receive(self) -> tuple[int, Iterable[Received]]:
        element = next(self._stream)
        asked = self._began
        room = sorted(self._room_at.values())
        settled = len(room) + 1 - AT_ONCE
        if settled > 0:
            asked = room[settled - 1]
        for each in element.messages:
            self._room_at[each.receipt] = asked + self.lease_ms * MILLISECOND
        return asked, [
            Received(each.partition, each.offset, each.value, each.attempt, each.receipt)
            for each in element.messages
        ]

    def settle(self, held: Sequence[Held], action: SettleAction, delay_ms: int) -> Outcomes:
        receipts = [each.record.receipt for each in held]
        if action is RENEW:
            call, request = self._stub.Renew, proto.RenewRequest(group=self.group, receipts=receipts)
        elif action is RELEASE:
            request = proto.NackRequest(group=self.group, receipts=receipts, delay_ms=delay_ms)
            call = self._stub.Nack
        else:
            call, request = self._stub.Ack, proto.AckRequest(group=self.group, receipts=receipts)
        if action is not RENEW:
            now = time.monotonic_ns()
            for receipt in receipts:
                if receipt in self._room_at:
                    self._room_at[receipt] = min(self._room_at[receipt], now)
        try:
            call(request, timeout=REQUEST_SECONDS)
        except grpc.RpcError as error:
            refused = dict(error.trailing_metadata() or ()).get("penstock-receipt-errors-bin")
            if refused is None:
                raise
            # The status is that of the first; of the others nobody knows why.
            indexes = list(proto.ReceiptErrors.FromString(refused).indexes)
            is_certain = len(indexes) == 1 and REFUSED in (error.details() or "")
            return [index not in indexes or (False if is_certain else None) for index in range(len(held))]
        return [True] * len(held)

    def hang_up(self) -> None:
        if self._channel is not None:
            self._channel.close()

    def interrupt(self) -> None:
        if self._stream is not None:
            self.is_interrupted = True
            self._stream.cancel()


class ShareWorker(QueueWorker):
    """A member of a share group, on the Kafka port. Its acknowledgements name it, and no receipt."""

    losses = (ClientError,)
    delays_ms = (0,)
    has_receipts = False
    _types: ClassVar[Mapping[SettleAction, int]] = {
        ACKNOWLEDGE: share_consumer.ACCEPT,
        RELEASE: share_consumer.RELEASE,
        RENEW: share_consumer.RENEW,
    }

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._consumer: WireShareConsumer | None = None

    def connect(self) -> None:
        nodes = [self.nodes[(self._turn + more) % len(self.nodes)] for more in range(len(self.nodes))]
        self._consumer = WireShareConsumer([node.kafka for node in nodes], self.group, self.name, self.topic)

    def receive(self) -> tuple[int, Iterable[Received]]:
        assert self._consumer is not None
        self._consumer.heartbeat()
        asked = time.monotonic_ns()
        records = self._consumer.fetch(AT_ONCE, WAIT_MS // len(self.nodes))
        assert self._consumer.lock_ms == self.lease_ms
        return asked, [
            Received(each.partition, each.offset, each.value, each.delivery_count, str(each))
            for each in records
        ]

    def settle(self, held: Sequence[Held], action: SettleAction, delay_ms: int) -> Outcomes:
        assert self._consumer is not None
        outcomes: dict[Held, bool | None] = {}
        for partition in dict.fromkeys(each.record.partition for each in held):
            its = [each for each in held if each.record.partition == partition]
            code = self._consumer.acknowledge(
                partition, [each.record.offset for each in its], self._types[action]
            )
            known = code is ErrorCode.NONE or (len(its) == 1 and code is ErrorCode.INVALID_RECORD_STATE)
            outcomes |= dict.fromkeys(its, code is ErrorCode.NONE if known else None)
        return [outcomes[each] for each in held]

    def hang_up(self) -> None:
        if self._consumer is not None:
            self._consumer.close()

    def leave(self) -> None:
        if self._consumer is not None:
            self._consumer.leave()


class LibrdkafkaShareWorker(QueueWorker):
    """Somebody else's share consumer. It fetches by itself, so that nobody knows when a lease begins."""

    losses = (KafkaException,)
    delays_ms = (0,)
    has_receipts = False
    keeps_some = False
    _types: ClassVar[Mapping[SettleAction, Any]] = {
        ACKNOWLEDGE: AcknowledgeType.ACCEPT,
        RELEASE: AcknowledgeType.RELEASE,
    }

    def __init__(
        self, name: str, group: str, journal: QueueJournal, nodes: Sequence[NodeAddresses], _: int
    ) -> None:
        super().__init__(name, group, journal, nodes, 0)
        self._consumer: Any = None

    def connect(self) -> None:
        # It finds its way by itself, and comes back after errors.
        if self._consumer is None:
            bootstrap = ",".join(f"{node.kafka[0]}:{node.kafka[1]}" for node in self.nodes)
            self._consumer = ShareConsumer(
                {
                    "bootstrap.servers": bootstrap,
                    "group.id": self.group,
                    "share.acknowledgement.mode": "explicit",
                    "socket.timeout.ms": 5_000,
                    "reconnect.backoff.max.ms": 200,
                    "log_level": 0,
                }
            )
            self._consumer.subscribe([self.topic])

    def receive(self) -> tuple[int, Iterable[Received]]:
        asked = time.monotonic_ns()
        return asked, [
            Received(
                each.partition(),
                each.offset(),
                each.value(),
                each.delivery_count(),
                f"{each.partition()}/{each.offset()}/{each.delivery_count()}",
            )
            for each in self._consumer.poll(WAIT_MS / 1_000)
            if each.error() is None
        ]

    def settle(self, held: Sequence[Held], action: SettleAction, delay_ms: int) -> Outcomes:
        for each in held:
            self._consumer.acknowledge_offset(
                self.topic, each.record.partition, each.record.offset, self._types[action]
            )
        settled = self._consumer.commit_sync(REQUEST_SECONDS)
        good = {place.partition for place, error in settled.items() if error is None}
        return [True if each.record.partition in good else None for each in held]

    def hang_up(self) -> None:
        """It is closed at the end only."""

    def leave(self) -> None:
        if self._consumer is not None:
            self._consumer.close()


def value_of(message: Mapping[str, Any]) -> bytes:
    """The value of a message in JSON."""
    if "value_base64" in message:
        return base64.b64decode(message["value_base64"])
    return json.dumps(message["value"]).encode()


def _outcome(error: Mapping[str, Any] | None) -> bool | None:
    if error is None:
        return True
    return False if error.get("code") == REFUSED else None
