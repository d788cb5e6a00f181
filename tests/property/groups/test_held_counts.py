"""What is counted as groups change is what counting from scratch finds."""

import random
from typing import Any

import pytest

from penstock.core.groups import LeavingMember, MemberIdRequired
from tests.property.groups.held import check_counts
from tests.unit.core.groups.consumer_driver import CONSUMER_OPTIONS, ConsumerDriver, Topics
from tests.unit.core.groups.group_driver import GROUP, protocols

NAMES = tuple(f"t{number}" for number in range(8))
PATTERNS = (None, None, "t[0-3]", "t.*", "nothing", "")


def subscription(generator: random.Random) -> dict[str, Any]:
    topics = tuple(generator.sample(NAMES, generator.randrange(4)))
    return {"topics": topics, "pattern": generator.choice(PATTERNS)}


@pytest.mark.parametrize("seed", range(15))
def test_counts_of_consumer_groups_are_right_after_every_step(seed: int) -> None:
    generator = random.Random(seed)
    driver = ConsumerDriver(CONSUMER_OPTIONS, topics=Topics(t0=2, t1=1))

    for number in range(250):
        members = driver.described().members if GROUP in driver.coordinator.image.consumers else ()
        member = generator.choice(members) if members else None
        match generator.choice(
            ("join", "join", "change", "beat", "beat", "leave", "topic", "wait", "fail over")
        ):
            case "join":
                host = f"/10.0.0.{generator.randrange(3)}"
                instance = generator.choice((None, None, "i", "j"))
                driver.beat(
                    f"m{number}", 0, client_host=host, instance_id=instance, **subscription(generator)
                )
            case "change" if member is not None:
                driver.beat(member.member_id, member.epoch, owned={}, **subscription(generator))
            case "beat" if member is not None:
                driver.beat(member.member_id, member.epoch, owned=member.target)
                check_topics(driver)
            case "leave" if member is not None:
                epoch = -1 if member.instance_id is None else generator.choice((-1, -2))
                driver.beat(member.member_id, epoch, instance_id=member.instance_id)
            case "topic":
                driver.change_topic(generator.choice(NAMES), generator.randrange(1, 4))
            case "fail over" if number % 5 == 0:
                driver = driver.failed_over()
            case _:
                driver.advance(generator.choice((1, 1_000, 3_000)))
        check_counts(driver.coordinator)

    driver.advance(100_000_000)
    assert driver.coordinator.held.total == 0
    assert driver.coordinator.size() == 0


def check_topics(driver: ConsumerDriver) -> None:
    """The group knows all topics that exist, of those that it is subscribed to, once nothing is stale."""
    group = driver.coordinator._consumers._live.get(GROUP)
    if group is not None and not group.is_stale and not group._changed:
        found = {name: driver.cluster.find(name) for name in sorted(group._subscribers)}
        expected = {name: topic for name, topic in found.items() if topic is not None}
        assert list(group.topics.items()) == list(expected.items())


def join_classic(driver: ConsumerDriver, generator: random.Random) -> list[str]:
    """A classic member asks for an id and joins with it, unless it is refused; returns the id."""
    fields: dict[str, Any] = {
        "protocols": protocols(*generator.sample(("range", "sticky", "x"), 2)),
        "client_host": f"/10.0.0.{generator.randrange(3)}",
    }
    given = driver.answers.get(driver.join(**fields))
    if not isinstance(given, MemberIdRequired):
        return []
    driver.join(given.member_id, **fields)
    return [given.member_id]


@pytest.mark.parametrize("seed", range(10))
def test_counts_are_right_while_groups_change_their_protocol(seed: int) -> None:
    generator = random.Random(seed)
    driver = ConsumerDriver(CONSUMER_OPTIONS)
    classic: list[str] = []

    for number in range(150):
        match generator.choice(("classic", "consumer", "again", "leave", "gone", "wait")):
            case "classic":
                classic += join_classic(driver, generator)
            case "consumer":
                driver.beat(f"m{number}", 0)
            case "again" if classic:
                driver.join(generator.choice(classic), protocols=protocols("range", topics=("t", "u")))
            case "leave" if classic:
                driver.leave(LeavingMember(classic.pop(generator.randrange(len(classic)))))
            case "gone" if GROUP in driver.coordinator.image.consumers:
                for member in driver.described().members:
                    driver.beat(member.member_id, -1)
            case _:
                driver.advance(generator.choice((1, 3_000, 30_000)))
        check_counts(driver.coordinator)

    driver.advance(100_000_000)
    assert driver.coordinator.held.total == 0
