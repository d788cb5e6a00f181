"""Fetch sessions: whose they are, how many there can be, and who gives way."""

from penstock.core.model import SECOND, Instant, PartitionIndex, Timestamp, TopicName, TopicPartition
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic
from penstock.server.kafka.fetch_sessions import (
    ConnectionFetchSessions,
    FetchContext,
    FetchSessionCache,
    FetchSessionError,
    FetchSessionLimits,
)

VERSION = 11
LIMITS = FetchSessionLimits(
    sessions_max=10,
    partitions_max=1_000,
    client_partitions_max=800,
    served_offsets_max=5,
    connection_served_offsets_max=3,
)


class Bench:
    """A node's sessions, at a time that is set by hand, with ids that count."""

    def __init__(self) -> None:
        self.now_ns = 1_000 * SECOND
        self._ids = 0
        self.cache = FetchSessionCache(self, self, LIMITS)

    def now(self) -> Instant:
        return Instant(self.now_ns)

    def wall(self) -> Timestamp:
        return Timestamp(0)

    def bytes(self, count: int) -> bytes:
        self._ids += 1
        return self._ids.to_bytes(count)

    def connect(self, client: str = "10.0.0.1") -> ConnectionFetchSessions:
        return self.cache.connect(client)


def fetch(partitions: range, session_id: int = 0, epoch: int = 0, *, topic: str = "orders") -> FetchRequest:
    rows = tuple(
        FetchRequestPartition(partition=index, fetch_offset=0, partition_max_bytes=1) for index in partitions
    )
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1,
        session_id=session_id,
        session_epoch=epoch,
        topics=(FetchRequestTopic(topic=topic, partitions=rows),) if rows else (),
        forgotten_topics_data=(),
        rack_id="",
    )


def begin(sessions: ConnectionFetchSessions, request: FetchRequest) -> FetchContext:
    context = sessions.begin(request, VERSION)
    assert isinstance(context, FetchContext), context
    return context


def refusal(sessions: ConnectionFetchSessions, request: FetchRequest) -> ErrorCode:
    context = sessions.begin(request, VERSION)
    assert isinstance(context, FetchSessionError), context
    return context.code


def test_sessions_end_with_their_connection() -> None:
    bench = Bench()
    leaving, staying = bench.connect(), bench.connect()
    begin(leaving, fetch(range(300)))
    begin(leaving, fetch(range(200)))
    kept = begin(staying, fetch(range(5))).session_id

    leaving.close()

    assert (len(bench.cache), bench.cache.partitions) == (1, 5)
    assert begin(staying, fetch(range(0), kept, 1)).session_id == kept


def test_a_session_is_not_served_on_another_connection() -> None:
    bench = Bench()
    session_id = begin(bench.connect(), fetch(range(3))).session_id

    other = bench.connect()

    assert refusal(other, fetch(range(0), session_id, 1)) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_partition_that_is_named_often_is_fetched_once() -> None:
    bench = Bench()
    often = FetchRequestPartition(partition=1, fetch_offset=7, partition_max_bytes=1)
    topic = FetchRequestTopic(topic="orders", partitions=(often,) * 1_000)

    for epoch in (-1, 0):
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=1,
            session_id=0,
            session_epoch=epoch,
            topics=(topic, topic),
            forgotten_topics_data=(),
            rack_id="",
        )
        assert [target.offset for target in begin(bench.connect(), request).targets] == [7]
    assert bench.cache.partitions == 1


def test_without_room_a_client_is_served_without_a_session() -> None:
    bench = Bench()
    client = bench.connect()
    begin(client, fetch(range(500)))

    context = begin(client, fetch(range(600)))

    assert (context.session_id, len(context.targets)) == (0, 600)
    assert bench.cache.partitions == 500


def test_who_holds_most_partitions_loses_a_session_to_another_client() -> None:
    bench = Bench()
    greedy, modest = bench.connect("10.6.6.6"), bench.connect("10.0.0.1")
    opened = [begin(greedy, fetch(range(400))).session_id for _ in range(2)]
    begin(bench.connect("10.0.0.2"), fetch(range(200)))

    session_id = begin(modest, fetch(range(100))).session_id

    assert session_id != 0
    assert refusal(greedy, fetch(range(0), opened[0], 1)) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert begin(greedy, fetch(range(0), opened[1], 1)).session_id == opened[1]
    assert bench.cache.partitions == 700


def test_a_small_session_finds_room_beside_large_ones_of_the_same_address() -> None:
    bench = Bench()
    begin(bench.connect(), fetch(range(400)))
    begin(bench.connect(), fetch(range(400)))

    assert begin(bench.connect(), fetch(range(6))).session_id != 0

    assert bench.cache.partitions == 406


def test_a_session_that_grows_beyond_what_there_is_ends_and_its_fetch_is_answered_in_full() -> None:
    bench = Bench()
    client = bench.connect()
    session_id = begin(client, fetch(range(700))).session_id

    context = begin(client, fetch(range(700, 900), session_id, 1))

    assert (context.session_id, len(context.targets)) == (0, 900)
    assert (len(bench.cache), bench.cache.partitions) == (0, 0)
    assert refusal(client, fetch(range(0), session_id, 2)) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_session_that_nobody_uses_gives_its_place_to_a_new_one() -> None:
    bench = Bench()
    client = bench.connect()
    opened = [begin(client, fetch(range(1))).session_id for _ in range(10)]
    bench.now_ns += 100 * SECOND
    begin(client, fetch(range(0), opened[0], 1))
    assert begin(client, fetch(range(1))).session_id == 0

    bench.now_ns += 21 * SECOND

    assert begin(client, fetch(range(1))).session_id != 0
    assert refusal(client, fetch(range(0), opened[1], 1)) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert begin(client, fetch(range(0), opened[0], 2)).session_id == opened[0]


def test_offsets_that_were_sent_are_remembered_within_limits() -> None:
    bench = Bench()
    first, second = bench.connect(), bench.connect()
    names = [TopicPartition(TopicName("orders"), PartitionIndex(index)) for index in range(6)]

    for name in names[:4]:
        first.remember_served(name, 1)
    for name in names[:4]:
        second.remember_served(name, 1)

    assert list(first.served_offsets) == names[1:4]
    assert list(second.served_offsets) == names[:2]
    first.close()
    assert bench.cache.served_offsets == 2


def test_a_fetch_with_a_name_that_no_topic_can_have_begins_no_session() -> None:
    bench = Bench()
    sessions = bench.connect()
    context = begin(sessions, fetch(range(2), topic="t" * 250))
    assert (context.session_id, len(context.targets), len(bench.cache)) == (0, 2, 0)
    assert begin(sessions, fetch(range(2), topic="t" * 249)).session_id


def test_a_session_to_which_such_a_name_is_added_ends() -> None:
    bench = Bench()
    sessions = bench.connect()
    kept = begin(sessions, fetch(range(2))).session_id
    assert (
        refusal(sessions, fetch(range(1), kept, 1, topic="t" * 30_000))
        == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    )
    assert (len(bench.cache), bench.cache.partitions) == (0, 0)
