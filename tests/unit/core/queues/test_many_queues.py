"""Many queues of one coordinator do not get in each other's way."""

from typing import Any

from penstock.core.model import ApiError, ErrorKind, Offset, PartitionIndex
from penstock.core.queues import (
    AcquireRecords,
    ForgetQueue,
    LeasesExpired,
    OfferRecords,
    OpenQueue,
    QueueId,
    QueueOk,
    QueueOpened,
    QueueOptions,
    QueueSettings,
    RecordsAcquired,
    Run,
)
from tests.unit.core.queues.queue_driver import QUEUE, Driver, ignore, image_of

QUEUES = [QUEUE._replace(partition=PartitionIndex(index)) for index in range(20)]


def leased() -> Driver:
    """A record of each queue is leased, for longer and longer."""
    driver = Driver()
    for index, queue in enumerate(QUEUES):
        common = {"on_reply": ignore, "queue": queue, "leader_epoch": driver.epoch}
        opening = OpenQueue(
            **common,  # type: ignore[arg-type]
            settings=QueueSettings(lease_ms=1_000 * (index + 1)),
            log_start=Offset(0),
            log_end=Offset(2),
            start=Offset(0),
        )
        run = Run(Offset(0), Offset(2))
        driver.ask(opening)
        driver.ask(OfferRecords(**common, start=run.start, end=run.end, plain=(run,)))  # type: ignore[arg-type]
        acquisition = AcquireRecords(**common, consumer="a", records_max=1, token=7)  # type: ignore[arg-type]
        reply = driver.ask(acquisition)
        assert isinstance(reply, RecordsAcquired)
        assert [record.offset for record in reply.records] == [0]
    return driver


def ended(driver: Driver) -> list[QueueId]:
    return [event.queue for event in driver.events if isinstance(event, LeasesExpired)]


def test_leases_end_one_queue_after_the_other() -> None:
    for driver in (leased(), leased().failover()):
        for index in range(20):
            driver.pass_ms(999)
            assert ended(driver) == QUEUES[:index]
            driver.pass_ms(1)
            assert ended(driver) == QUEUES[: index + 1]


def test_a_queue_that_is_forgotten_leaves_nothing() -> None:
    driver = leased()
    kept = image_of(driver.machine)
    for queue in QUEUES[1:]:
        del kept[queue]
        assert driver.ask(ForgetQueue(on_reply=ignore, queue=queue)) == QueueOk()

    assert image_of(driver.machine) == kept == image_of(driver.failover().machine)
    assert driver.machine.size() == 1
    driver.pass_ms(60_000)
    assert ended(driver) == QUEUES[:1]
    assert driver.machine.next_deadline() is None


def test_facts_about_a_queue_that_is_not_known_change_nothing() -> None:
    driver = leased()
    facts = [fact for fact in driver.log if getattr(fact, "queue", None) == QUEUES[3]]

    other = Driver(facts=facts[1:])

    assert image_of(other.machine) == {}


def opened(driver: Driver, queue: QueueId) -> Any:
    return driver.ask(
        OpenQueue(
            on_reply=ignore,
            queue=queue,
            leader_epoch=driver.epoch,
            settings=QueueSettings(),
            log_start=Offset(0),
            log_end=Offset(2),
            start=Offset(0),
        )
    )


def test_without_room_a_group_gets_no_queue_that_it_did_not_have() -> None:
    room = [True]
    driver = Driver(QueueOptions(has_room=lambda group_id, _: room[0] or group_id != QUEUE.group_id))
    assert isinstance(opened(driver, QUEUES[0]), QueueOpened)
    room[0] = False

    refused = opened(driver, QUEUES[1])

    assert isinstance(refused, ApiError)
    assert refused.kind is ErrorKind.GROUP_FULL
    assert isinstance(opened(driver, QUEUES[0]), QueueOpened)
    assert isinstance(opened(driver, QUEUES[1]._replace(group_id="others")), QueueOpened)
    assert list(driver.machine.queues) == [QUEUES[0], QUEUES[1]._replace(group_id="others")]


def test_queues_count_for_their_group_until_they_are_forgotten_also_after_a_failover() -> None:
    driver = Driver()
    others = [each._replace(group_id="é" * 1_000) for each in QUEUES[:2]]
    for queue in (*QUEUES[:4], *others):
        opened(driver, queue)

    for each in (driver, driver.failover()):
        machine = each.machine
        assert 16_000 <= machine.held_bytes_of(QUEUE.group_id) < 17_000
        assert 16_000 <= machine.held_bytes_of(others[0].group_id) < 17_000
        for queue in QUEUES[:4]:
            each.ask(ForgetQueue(on_reply=ignore, queue=queue))
        assert machine.held_bytes_of(QUEUE.group_id) == 0
        assert machine.held_bytes == machine.held_bytes_of(others[0].group_id)
