from penstock.core.model import SECOND, Instant
from penstock.sim.clocks import SimulatedClock
from penstock.sim.scheduler import Scheduler


def test_events_happen_by_time_and_equal_ones_as_they_were_asked_for() -> None:
    scheduler = Scheduler()
    happened: list[tuple[int, str]] = []

    def note(what: str) -> None:
        happened.append((scheduler.now, what))

    scheduler.at(20, note, "last")
    scheduler.at(10, note, "first")
    scheduler.at(10, note, "second")
    scheduler.at(10, lambda: scheduler.at(5, note, "asked for too late"))
    scheduler.at(31, note, "never")
    scheduler.run(30)

    assert happened == [(10, "first"), (10, "second"), (10, "asked for too late"), (20, "last")]
    assert scheduler.now == 30


def test_a_run_ends_early_when_it_is_enough() -> None:
    scheduler = Scheduler()
    happened: list[int] = []
    for moment in range(10):
        scheduler.at(moment, happened.append, moment)

    scheduler.run(100, lambda: len(happened) == 3)

    assert happened == [0, 1, 2]
    assert scheduler.now == 2


def test_a_drifting_clock_reaches_every_deadline_exactly_once_and_not_before() -> None:
    for drift_ppm in (-200, -1, 0, 1, 200):
        scheduler = Scheduler()
        scheduler.run(12345)
        clock = SimulatedClock(scheduler, base=987_654_321, drift_ppm=drift_ppm, skew_ms=0)

        for wait in (0, 1, 999, 1_000_003, 10 * SECOND):
            deadline = Instant(clock.now() + wait)
            moment = clock.moment_of(deadline)
            scheduler.run(moment - 1)
            assert wait == 0 or clock.now() < deadline
            scheduler.run(moment)
            assert clock.now() >= deadline


def test_the_wall_clock_jumps_and_the_monotonic_one_does_not_notice() -> None:
    scheduler = Scheduler()
    clock = SimulatedClock(scheduler, base=0, drift_ppm=0, skew_ms=0)
    before, wall_before = clock.now(), clock.wall()

    clock.skew_ms -= 3_600_000

    assert clock.now() == before
    assert clock.wall() == wall_before - 3_600_000
