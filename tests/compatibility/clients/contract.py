"""What every client can do. A test file per client inherits these tests and supplies the `client`."""

from collections.abc import Callable

import pytest

from penstock.core.records import CompressionType
from tests.compatibility.clients.client import Client, Member, Received, Sent, collect, polling, wait_until
from tests.compatibility.node import Broker

PARTITIONS = 4
CODECS = {codec.name.lower(): codec for codec in CompressionType}
# 2023-11-14; before any retention a client could mean, and easy to tell from the present.
EPOCH_MS = 1_700_000_000_000


def records(first: int, count: int) -> list[Sent]:
    """Records that say their number, spread over all partitions; compressible."""
    return [Sent(f"{n} {'water ' * 20}", f"key-{n}", n % PARTITIONS) for n in range(first, first + count)]


def values(received: list[Received]) -> list[str]:
    return sorted(record.value for record in received)


class EveryClient:
    """The behaviour that is asked of each client."""

    @pytest.fixture
    def topic(self, client: Client, fresh: Callable[[str], str]) -> str:
        topic = fresh("orders")
        client.create_topic(topic, PARTITIONS)
        return topic

    def test_a_topic_is_listed_from_its_creation_to_its_deletion(
        self, client: Client, fresh: Callable[[str], str]
    ) -> None:
        topic = fresh("short-lived")
        assert topic not in client.topics()

        client.create_topic(topic, PARTITIONS)
        after_creation = client.topics()
        client.delete_topic(topic)
        after_deletion = client.topics()

        assert topic in after_creation
        assert topic not in after_deletion

    @pytest.mark.parametrize("codec", CODECS)
    def test_records_come_back_as_they_were_sent(
        self, client: Client, broker: Broker, topic: str, fresh: Callable[[str], str], codec: str
    ) -> None:
        sent = records(0, 40)

        client.produce(topic, sent, codec)
        with client.join(fresh("readers"), topic) as member:
            received = collect(member, len(sent))

        assert sorted((r.value, r.key, r.partition) for r in received) == sorted(
            (s.value, s.key, s.partition) for s in sent
        )
        assert broker.stored_codecs(topic) == {CODECS[codec]}

    def test_two_members_share_the_partitions_and_each_record_is_read_once(
        self, client: Client, topic: str, fresh: Callable[[str], str]
    ) -> None:
        group = fresh("pair")
        before, after = records(0, 40), records(40, 80)
        client.produce(topic, before)

        with client.join(group, topic) as first:
            received = collect(first, len(before))
            alone = first.assigned()
            first.commit()
            with client.join(group, topic) as second:
                self.wait_for_shares(first, second, received)
                shares = first.assigned(), second.assigned()
                client.produce(topic, after)
                by_first: list[Received] = []
                by_second: list[Received] = []
                wait_until(
                    lambda: len(by_first) + len(by_second) >= len(after),
                    polling((first, by_first), (second, by_second)),
                    "the second half of the records",
                )

        assert alone == set(range(PARTITIONS))
        assert {r.partition for r in by_first} == shares[0]
        assert {r.partition for r in by_second} == shares[1]
        assert values(received + by_first + by_second) == sorted(s.value for s in before + after)

    @staticmethod
    def wait_for_shares(first: Member, second: Member, received: list[Received]) -> None:
        def shared() -> bool:
            one, two = first.assigned(), second.assigned()
            return bool(one and two) and not one & two and one | two == set(range(PARTITIONS))

        wait_until(
            shared,
            polling((first, received), (second, received)),
            "both members to have partitions",
        )

    def test_a_new_consumer_resumes_where_the_group_committed(
        self, client: Client, topic: str, fresh: Callable[[str], str]
    ) -> None:
        group = fresh("resuming")
        before, after = records(0, 20), records(20, 20)
        client.produce(topic, before)
        with client.join(group, topic) as member:
            collect(member, len(before))
            member.commit()
        client.produce(topic, after)

        with client.join(group, topic) as successor:
            received = collect(successor, len(after))

        assert values(received) == sorted(s.value for s in after)

    def test_reading_starts_at_the_first_record_since_a_time(self, client: Client, topic: str) -> None:
        client.produce(topic, [Sent(f"{n}", f"{n}", 1, EPOCH_MS + n * 1000) for n in range(10)])

        received = client.read_since(topic, 1, EPOCH_MS + 5500, 4)

        assert [(r.value, r.offset, r.timestamp_ms) for r in received] == [
            (f"{n}", n, EPOCH_MS + n * 1000) for n in range(6, 10)
        ]
