"""`ClusterClient`: any request to any broker of a cluster, from one event loop.

    async with ClusterClient([("127.0.0.1", 9092)]) as cluster:
        await cluster.ask(request)                              # any broker that responds
        await cluster.ask_leader("orders", 0, request)          # the partition's leader
        await cluster.ask_coordinator(GROUP, "workers", request)

Responses come in the order of the requests, so what takes long has its own connections to a broker:

* one that many requests share, for what is answered at once: metadata, heartbeats, acknowledgements;
* one for records to produce, which wait for replicas;
* one per request that waits for something else (`waits=True`, `WAITING`): kept for the next one, a few.

Leaders and coordinators are cached. A response that says they moved, and a connection that ends, make
the client look again and try again, with backoff, until the request's time is over. The one thing
that is not tried again is a request that was sent, whose response is lost, and that would do its
work twice: then the caller gets `ConnectionLost`, and decides.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from functools import partial
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar
from uuid import UUID

from penstock.client.backoff import Backoff
from penstock.client.cluster.errors import ClusterError, ConnectionLost, expect, known_code
from penstock.client.cluster.pipeline import RequestPipeline, open_pipeline
from penstock.client.cluster.security import ClusterSecurity
from penstock.client.connection import BrokerAddress, api_of
from penstock.core.protocol import ErrorCode, Message, Part
from penstock.core.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from penstock.core.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from penstock.core.protocol.schema import ArrayOf, PartOf

REQUEST_SECONDS = 30.0
METADATA_SECONDS = 60.0
# Connections that are kept for requests that wait, per broker, and how many may wait at once.
WAITING_KEPT = 16
WAITING_MAX = 1_000
COORDINATORS_MAX = 10_000
# What a broker says that does not lead the partition, or not yet.
LEADER_CHANGES = frozenset({
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.REPLICA_NOT_AVAILABLE,
})  # fmt: skip
COORDINATOR_CHANGES = frozenset({
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
})  # fmt: skip
# Why there is no leader or coordinator to ask; a topic that is missing stays missing.
NOT_FOUND_YET = COORDINATOR_CHANGES | {ErrorCode.LEADER_NOT_AVAILABLE}
# Requests that only read, or do the same when they come twice: Fetch, ListOffsets, Metadata,
# OffsetCommit, OffsetFetch, FindCoordinator, the descriptions and lists, ApiVersions, InitProducerId
# without a transactional id, heartbeats with an epoch, QueueDescribe, QueuePeek, DelayRecords with ids,
# ListDelays.
REPEATABLE = frozenset({
    1, 2, 3, 8, 9, 10, 15, 16, 18, 22, 23, 29, 32, 35, 46, 48, 50, 55, 60, 61, 65, 66, 68, 69, 74, 75, 76,
    77, 90, 10_003, 10_005, 10_010, 10_012,
})  # fmt: skip
# Requests that wait at the broker, whoever asks: CreateTopics, DeleteTopics and CreatePartitions until the
# brokers know, QueueRedrive until its transactions are through.
WAITING = frozenset({19, 20, 37, 10_006})
R = TypeVar("R")


class ClusterPartition(NamedTuple):
    """Where a partition is; leader None while it has none."""

    partition: int
    leader: int | None
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


class ClusterTopic(NamedTuple):
    """A topic as the brokers describe it; `partitions[i]` is partition i."""

    name: str
    topic_id: UUID
    is_internal: bool
    partitions: tuple[ClusterPartition, ...]


class _SharedConnection:
    """A connection of many requests, opened when there is one."""

    def __init__(
        self, address: BrokerAddress, client_id: str, security: ClusterSecurity | None = None
    ) -> None:
        self._address = address
        self._client_id = client_id
        self._security = security
        self._pipeline: RequestPipeline | None = None
        self._opening: asyncio.Task[RequestPipeline] | None = None

    async def get(self) -> RequestPipeline:
        """The connection; whoever comes while it is opened waits for the same."""
        if self._pipeline is not None and self._pipeline.is_open:
            return self._pipeline
        if self._opening is None:
            self._opening = asyncio.get_running_loop().create_task(self._open())
            self._opening.add_done_callback(_mark_seen)
        return await asyncio.shield(self._opening)

    async def _open(self) -> RequestPipeline:
        try:
            self._pipeline = await open_pipeline(self._address, self._client_id, self._security)
            return self._pipeline
        finally:
            self._opening = None

    async def close(self) -> None:
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait([self._opening])
        if self._pipeline is not None:
            self._pipeline.close()


class _BrokerNode:
    """The connections to one broker."""

    def __init__(
        self, address: BrokerAddress, client_id: str, security: ClusterSecurity | None = None
    ) -> None:
        self.address = address
        self._client_id = client_id
        self._security = security
        self.shared = _SharedConnection(address, client_id, security)
        self.producing = _SharedConnection(address, client_id, security)
        self._kept: list[RequestPipeline] = []
        self._waiting: dict[RequestPipeline, None] = {}
        self._slots = asyncio.Semaphore(WAITING_MAX)

    async def ask_waiting(self, request: Message) -> Message:
        """Ask on a connection of its own, which another request may use afterwards."""
        async with self._slots:
            pipeline = self._kept.pop() if self._kept else None
            if pipeline is None or not pipeline.is_open:
                pipeline = await open_pipeline(self.address, self._client_id, self._security)
            self._waiting[pipeline] = None
            try:
                return await pipeline.ask(request)
            finally:
                del self._waiting[pipeline]
                if pipeline.is_open and pipeline.is_idle and len(self._kept) < WAITING_KEPT:
                    self._kept.append(pipeline)
                else:
                    pipeline.close()

    async def close(self) -> None:
        await self.shared.close()
        await self.producing.close()
        for pipeline in (*self._kept, *self._waiting):
            pipeline.close()
        self._kept.clear()


class ClusterClient:
    """Finds leaders and coordinators by itself; made and used inside one event loop."""

    def __init__(
        self,
        bootstrap: Sequence[BrokerAddress],
        *,
        client_id: str = "penstock",
        security: ClusterSecurity | None = None,
    ) -> None:
        if not bootstrap:
            raise ValueError("a cluster is reached by at least one address")
        self._bootstrap = [(host, port) for host, port in bootstrap]
        self._client_id = client_id
        self._security = security
        self._loop = asyncio.get_running_loop()
        self._nodes: dict[BrokerAddress, _BrokerNode] = {}
        self._addresses: dict[int, BrokerAddress] = {}
        self._topics: dict[str, ClusterTopic] = {}
        self._topics_at: dict[str, float] = {}
        self._lookups: dict[tuple[str, bool], asyncio.Task[ClusterTopic]] = {}
        self._coordinators: dict[tuple[int, str], int] = {}
        self._last_good: BrokerAddress | None = None
        self._is_closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    async def close(self) -> None:
        """End all connections; whoever still waits gets an error."""
        self._is_closed = True
        lookups = list(self._lookups.values())
        for lookup in lookups:
            lookup.cancel()
        if lookups:
            await asyncio.wait(lookups)
        for node in list(self._nodes.values()):
            await node.close()
        # The transports end in the loop's next turn.
        await asyncio.sleep(0)

    async def ask(
        self,
        request: Message,
        *,
        node: int | None = None,
        seconds: float = REQUEST_SECONDS,
        waits: bool = False,
    ) -> Any:
        """Ask one broker, or any that responds; `waits` if the request may wait there for something."""
        return await self._in_time(seconds, self._ask(request, node, waits))

    async def ask_leader(
        self,
        topic: str,
        partition: int,
        request: Message,
        *,
        seconds: float = REQUEST_SECONDS,
        waits: bool = False,
    ) -> Any:
        """Ask the leader of a partition; a response that it is not the leader is followed."""
        find = partial(self._find_leader, topic, partition)
        forget = partial(self.forget_topic, topic)
        work = self._ask_found(find, forget, LEADER_CHANGES, request, seconds, waits)
        return await self._in_time(seconds, work)

    async def ask_coordinator(
        self, kind: int, key: str, request: Message, *, seconds: float = REQUEST_SECONDS
    ) -> Any:
        """Ask the coordinator of a group (kind 0) or a transactional id (kind 1)."""
        find = partial(self._find_coordinator, kind, key)

        def forget() -> None:
            self._coordinators.pop((kind, key), None)

        work = self._ask_found(find, forget, COORDINATOR_CHANGES, request, seconds, False)
        return await self._in_time(seconds, work)

    async def leader(self, topic: str, partition: int, *, seconds: float = REQUEST_SECONDS) -> int:
        """Who leads a partition, as far as is known; whoever learns otherwise calls `forget_topic`."""
        return await self._in_time(seconds, self._find_leader(topic, partition))

    async def topic(
        self, name: str, *, create: bool = False, seconds: float = REQUEST_SECONDS
    ) -> ClusterTopic:
        """A topic, from the cache if it is fresh; with `create`, brokers that are set up so create it."""
        if (found := self.cached_topic(name)) is not None:
            return found
        return await self._in_time(seconds, self._looked_up(name, create))

    async def topics(self, *, seconds: float = REQUEST_SECONDS) -> list[ClusterTopic]:
        """Every topic, internal ones too, as the brokers know them now."""
        answer = await self.ask(
            MetadataRequest(topics=None, allow_auto_topic_creation=False), seconds=seconds
        )
        self._learn(answer)
        return sorted(_topic_of(row) for row in answer.topics if row.error_code == ErrorCode.NONE)

    def cached_topic(self, name: str) -> ClusterTopic | None:
        """A topic that was looked up less than a minute ago, without asking anybody."""
        at = self._topics_at.get(name)
        return self._topics[name] if at is not None and self._loop.time() - at < METADATA_SECONDS else None

    def forget_topic(self, name: str) -> None:
        """Ask again before the next use: its leaders seem to have moved."""
        self._topics_at.pop(name, None)
        self._topics.pop(name, None)

    def topic_name(self, topic_id: UUID) -> str | None:
        """The name of a topic that the cache has."""
        return next((one.name for one in self._topics.values() if one.topic_id == topic_id), None)

    async def produce_connection(self, node: int) -> RequestPipeline:
        """The connection for records to a broker, opened if need be."""
        return await (await self._node(node)).producing.get()

    async def _in_time(self, seconds: float, work: Coroutine[Any, Any, R]) -> R:
        try:
            async with asyncio.timeout(seconds):
                return await work
        except TimeoutError:
            raise ClusterError(ErrorCode.REQUEST_TIMED_OUT, f"no response within {seconds:g} s") from None

    async def _ask(self, request: Message, node: int | None, waits: bool) -> Any:
        backoff = Backoff()
        while True:
            try:
                if node is not None:
                    return await self._ask_broker(await self._node(node), request, waits)
                return await self._ask_any(request, waits)
            except ClusterError as error:
                if self._is_closed or not _may_repeat(request, error):
                    raise
                if node is not None:
                    # It may be back at another address.
                    self._addresses.pop(node, None)
            await asyncio.sleep(backoff.next_seconds())

    async def _ask_broker(self, broker: _BrokerNode, request: Message, waits: bool) -> Any:
        if waits or api_of(type(request)).key in WAITING:
            return await broker.ask_waiting(request)
        return await (await broker.shared.get()).ask(request)

    async def _ask_any(self, request: Message, waits: bool) -> Any:
        """Ask the broker that responded last, else the first that can be connected to."""
        failure: ClusterError | None = None
        for address in self._candidates():
            broker = self._broker(address)
            try:
                await broker.shared.get()
            except ClusterError as error:
                failure = error
                continue
            self._last_good = address
            return await self._ask_broker(broker, request, waits)
        assert failure is not None
        raise failure

    def _candidates(self) -> list[BrokerAddress]:
        found = dict.fromkeys([*self._addresses.values(), *self._bootstrap])
        if self._last_good is not None:
            found = {self._last_good: None, **found}
        return list(found)

    def _broker(self, address: BrokerAddress) -> _BrokerNode:
        if self._is_closed:
            raise ClusterError(ErrorCode.NETWORK_EXCEPTION, "the client is closed")
        broker = self._nodes.get(address)
        if broker is None:
            broker = self._nodes[address] = _BrokerNode(address, self._client_id, self._security)
        return broker

    async def _node(self, node: int) -> _BrokerNode:
        address = self._addresses.get(node)
        if address is None:
            self._learn(
                await self._ask_any(MetadataRequest(topics=(), allow_auto_topic_creation=False), False)
            )
            address = self._addresses.get(node)
            if address is None:
                raise ClusterError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {node} is not in the cluster")
        return self._broker(address)

    async def _ask_found(
        self,
        find: Callable[[], Awaitable[int]],
        forget: Callable[[], None],
        changes: frozenset[ErrorCode],
        request: Message,
        seconds: float,
        waits: bool,
    ) -> Any:
        """Ask the broker that `find` returns; look again when it is not the right one any more."""
        backoff, until = Backoff(50), self._loop.time() + seconds
        while True:
            failure = None
            try:
                node = await find()
                answer = await self._ask_broker(await self._node(node), request, waits)
                if not any(code in changes for code in error_codes(answer)):
                    return answer
            except ClusterError as error:
                if self._is_closed or not (error.code in NOT_FOUND_YET or _may_repeat(request, error)):
                    raise
                failure = error
                # Brokers that come back may have another address.
                self._addresses.clear()
            pause = backoff.next_seconds()
            if self._loop.time() + pause > until:
                if failure is not None:
                    raise failure
                return answer
            forget()
            await asyncio.sleep(pause)

    async def _find_leader(self, topic: str, partition: int) -> int:
        found = self.cached_topic(topic) or await self._looked_up(topic, False)
        if not 0 <= partition < len(found.partitions):
            raise ClusterError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic} has no partition {partition}"
            )
        leader = found.partitions[partition].leader
        if leader is None:
            raise ClusterError(
                ErrorCode.LEADER_NOT_AVAILABLE, f"partition {partition} of {topic} has no leader"
            )
        return leader

    async def _find_coordinator(self, kind: int, key: str) -> int:
        if (known := self._coordinators.get((kind, key))) is not None:
            return known
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=(key,))
        answer = await self._ask_any(request, False)
        assert isinstance(answer, FindCoordinatorResponse)
        found = answer.coordinators[0]
        expect(found.error_code, found.error_message)
        self._addresses[found.node_id] = (found.host, found.port)
        if len(self._coordinators) >= COORDINATORS_MAX:
            self._coordinators.clear()
        self._coordinators[kind, key] = found.node_id
        return found.node_id

    async def _looked_up(self, name: str, create: bool) -> ClusterTopic:
        """One request for all who ask at once; a caller that stops waiting does not stop it."""
        lookup = self._lookups.get((name, create))
        if lookup is None:
            lookup = self._lookups[name, create] = self._loop.create_task(self._look_up(name, create))
            lookup.add_done_callback(_mark_seen)
        return await asyncio.shield(lookup)

    async def _look_up(self, name: str, create: bool) -> ClusterTopic:
        request = MetadataRequest(topics=(MetadataRequestTopic(name=name),), allow_auto_topic_creation=create)
        backoff, until = Backoff(50), self._loop.time() + REQUEST_SECONDS
        try:
            while True:
                answer = await self.ask(request)
                assert isinstance(answer, MetadataResponse)
                self._learn(answer)
                row = answer.topics[0]
                if row.error_code == ErrorCode.NONE:
                    return self._topics[name]
                pause = backoff.next_seconds()
                # A topic that is about to be created is not there yet.
                if row.error_code != ErrorCode.LEADER_NOT_AVAILABLE or self._loop.time() + pause > until:
                    raise _topic_error(name, row.error_code)
                await asyncio.sleep(pause)
        finally:
            del self._lookups[name, create]

    def _learn(self, answer: MetadataResponse) -> None:
        if answer.brokers:
            self._addresses = {one.node_id: (one.host, one.port) for one in answer.brokers}
        now = self._loop.time()
        for row in answer.topics:
            if row.name is None:
                continue
            if row.error_code == ErrorCode.NONE:
                self._topics[row.name] = _topic_of(row)
                self._topics_at[row.name] = now
            else:
                self.forget_topic(row.name)


def _topic_of(row: MetadataResponseTopic) -> ClusterTopic:
    assert row.name is not None
    partitions = sorted(
        ClusterPartition(
            one.partition_index,
            one.leader_id if one.leader_id >= 0 else None,
            one.leader_epoch,
            tuple(one.replica_nodes),
            tuple(one.isr_nodes),
        )
        for one in row.partitions
    )
    return ClusterTopic(row.name, row.topic_id, row.is_internal, tuple(partitions))


def _topic_error(name: str, code: int) -> ClusterError:
    known = known_code(code)
    reasons = {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: f"there is no topic {name}",
        ErrorCode.INVALID_TOPIC_EXCEPTION: f"{name!r} is no name for a topic",
        ErrorCode.TOPIC_AUTHORIZATION_FAILED: f"not authorized for topic {name}",
        ErrorCode.LEADER_NOT_AVAILABLE: f"topic {name} has no leader yet",
    }
    return ClusterError(known, reasons.get(known))


def _may_repeat(request: Message, error: ClusterError) -> bool:
    """Whether the request was not sent, or does no harm when it comes twice."""
    if isinstance(error, ConnectionLost):
        return api_of(type(request)).key in REPEATABLE
    return error.code is ErrorCode.BROKER_NOT_AVAILABLE


def error_codes(message: Any) -> Iterator[int]:
    """Every error code in a response, wherever it stands."""
    has_code, fields = _error_fields(type(message))
    if has_code:
        yield message.error_code
    for name in fields:
        value = getattr(message, name)
        if isinstance(value, tuple):
            for one in value:
                yield from error_codes(one)
        elif value is not None:
            yield from error_codes(value)


_ERROR_FIELDS: dict[type[Part], tuple[bool, tuple[str, ...]]] = {}


def _error_fields(kind: type[Part]) -> tuple[bool, tuple[str, ...]]:
    """Whether a part has an error code, and which fields hold parts that have."""
    if (known := _ERROR_FIELDS.get(kind)) is not None:
        return known
    has_code, fields = False, []
    for one in kind.__schema__.fields:
        has_code |= one.name == "error_code"
        wire_type = one.type.element if isinstance(one.type, ArrayOf) else one.type
        if isinstance(wire_type, PartOf) and any(_error_fields(wire_type.part)):
            fields.append(one.name)
    found = _ERROR_FIELDS[kind] = has_code, tuple(fields)
    return found


def _mark_seen(task: "asyncio.Task[Any]") -> None:
    """An error that nobody waits for any more is not worth a warning."""
    if not task.cancelled():
        task.exception()
