"""Many queues of one coordinator do not get in each other's way."""

from penstock.core.model import Offset, PartitionIndex
from penstock.core.queues import (
    AcquireRecords,
    ForgetQueue,
    LeasesExpired,
    OfferRecords,
    OpenQueue,
    QueueId,
    QueueOk,
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
