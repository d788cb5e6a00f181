"""What members of consumer groups say of themselves: counted by host, refused without room."""

from dataclasses import replace

from penstock.core.groups import AssignableTopic, ConsumerGroupOptions, MemberProtocol
from penstock.core.model import ErrorKind
from tests.unit.core.groups.consumer_driver import CONSUMER_OPTIONS, ConsumerDriver, Member, Topics, timeouts
from tests.unit.core.groups.group_driver import GROUP, subscription

FIRST, SECOND = "/10.0.0.1", "/10.0.0.2"
MANY = tuple([f"topic-{number:04}" for number in range(1_000)])


def test_a_member_counts_for_its_host_until_it_leaves() -> None:
    driver = ConsumerDriver()
    coordinator = driver.coordinator

    driver.member("a", client_host=FIRST, topics=("t",))
    little = coordinator.held.total
    second = driver.member("b", client_host=SECOND, topics=MANY)
    second.leave()

    assert 1_000 < little < 6_000
    assert coordinator.held.total == coordinator.held.of(FIRST) < 7_000


def test_a_large_subscription_counts_with_its_names() -> None:
    driver = ConsumerDriver()
    driver.member("a", client_host=FIRST)
    driver.member("b", client_host=SECOND, topics=MANY)

    assert 50_000 < driver.coordinator.held.of(SECOND) < 100_000
    assert driver.failed_over().coordinator.held.of(SECOND) == driver.coordinator.held.of(SECOND)


def test_a_member_that_goes_on_elsewhere_counts_for_its_new_host() -> None:
    driver = ConsumerDriver()
    member = driver.member("a", client_host=FIRST, topics=MANY)
    driver.member("b", client_host=FIRST)
    before = driver.coordinator.held.of(FIRST)

    member.beat(client_host=SECOND)

    assert driver.coordinator.held.of(SECOND) > 50_000
    assert driver.coordinator.held.of(FIRST) < before - 50_000


def test_partitions_of_a_small_member_count() -> None:
    driver = ConsumerDriver(topics=Topics(t=10_000))

    driver.member("a", client_host=FIRST)

    assert driver.coordinator.held.of(FIRST) > 1_000_000


def test_without_room_nobody_joins_and_members_go_on_with_little() -> None:
    room = [100_000]
    driver = ConsumerDriver(replace(CONSUMER_OPTIONS, has_member_room=lambda _, size: size <= room[0]))
    small, large = driver.member("a"), driver.member("b", topics=MANY)
    room[0] = 0

    assert driver.refused("c", 0) is ErrorKind.GROUP_FULL
    assert driver.refused("c", 0, instance_id="i") is ErrorKind.GROUP_FULL
    small.beat()
    small.beat(topics=("t", "u"))
    assert driver.refused("a", small.epoch, owned={}, topics=MANY) is ErrorKind.GROUP_FULL
    large.beat()
    large.beat(topics=MANY[:900])
    assert driver.described_member("a").topics == ("t", "u")
    assert "c" not in [member.member_id for member in driver.described().members]


def test_without_room_a_static_member_comes_back() -> None:
    room = [100_000]
    driver = ConsumerDriver(replace(CONSUMER_OPTIONS, has_member_room=lambda _, size: size <= room[0]))
    member = driver.member("a", instance_id="i", topics=MANY)
    member.leave(-2)
    room[0] = 0

    again = driver.member("b", instance_id="i", topics=MANY)

    assert again.epoch > 0


def test_a_classic_member_needs_room_and_few_protocols_in_a_consumer_group() -> None:
    room = [100_000]
    driver = ConsumerDriver(replace(CONSUMER_OPTIONS, has_member_room=lambda _, size: size <= room[0]))
    driver.member("a")
    metadata = subscription("t") + bytes(4)
    names = [MemberProtocol(f"assignor-{number}", metadata) for number in range(101)]

    too_many = driver.join(protocols=tuple(names), member_id_required=False)
    accepted = driver.join(protocols=tuple(names[:100]), member_id_required=False)
    room[0] = 0
    refused = driver.join(protocols=tuple(names[:1]), member_id_required=False)

    assert driver.kind_of(too_many) is ErrorKind.INVALID_REQUEST
    assert driver.joined(accepted).generation > 0
    assert driver.kind_of(refused) is ErrorKind.GROUP_FULL


class CountingTopics(Topics):
    """Counts how often a topic is looked for."""

    def __init__(self) -> None:
        super().__init__(t=1)
        self.asked = 0

    def find(self, name: str) -> AssignableTopic | None:
        self.asked += 1
        return super().find(name)


def test_only_names_that_nobody_had_before_are_looked_for() -> None:
    consumer = ConsumerGroupOptions(timeouts=timeouts)
    driver = ConsumerDriver(replace(CONSUMER_OPTIONS, consumer=consumer), topics=CountingTopics())
    topics = driver.cluster
    assert isinstance(topics, CountingTopics)
    for number in range(20):
        driver.member(f"m{number}", topics=MANY)
    assert topics.asked == len(MANY)

    driver.member("new", topics=(*MANY, "t"))
    last: Member = driver.member("last", topics=(*MANY, "t"))
    last.leave()
    driver.change_topic("t", 3)
    driver.member("again", topics=MANY)

    assert topics.asked == len(MANY) + 2
    assert driver.coordinator._consumers._live[GROUP].topics["t"].partitions == 3
