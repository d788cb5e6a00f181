"""The log of `__delayed` is kept short, and what is pending survives that, also with a transaction open."""

from penstock.broker.coordinator.runtime import CoordinatorOptions
from penstock.core.metadata import DELAYED_TOPIC
from tests.unit.broker.delays.delay_stage import DelayStage


def rewriting_stage() -> DelayStage:
    """A stage whose logs are rewritten early."""
    stage = DelayStage()
    stage.create()
    rewrite_early(stage)
    return stage


def rewrite_early(stage: DelayStage) -> None:
    delays = stage.nodes[1].services._delays
    assert delays is not None
    object.__setattr__(delays._coordinators._context, "options", CoordinatorOptions(rewrite_records_min=40))


def log_starts(stage: DelayStage) -> list[int]:
    found = [stage.at(1).partitions.find(DELAYED_TOPIC, index) for index in range(4)]
    return [partition.log.start for partition in found if partition is not None]


def test_what_is_published_is_cut_off_and_what_is_pending_is_written_again() -> None:
    stage = rewriting_stage()
    far = [stage.delay(f"far{at}", 100_000, id=4 * at) for at in range(5)]
    for at in range(200):
        stage.delay(f"near{at}", 10, id=4 * (100 + at))
    stage.until(lambda: len(stage.values()) == 200)
    stage.until(lambda: max(log_starts(stage)) > 0)

    assert sorted(stage.listed()) == sorted(far)
    stage.world.nodes["n1"].kill()
    stage.nodes[1].backend = None
    stage.world.nodes["n1"].start()
    stage.until(lambda: stage.nodes[1].backend is not None)

    assert stage.cancel(far[0]) is None
    assert sorted(stage.listed()) == sorted(far[1:])
    stage.pass_ms(120_000)
    assert sorted(stage.values()) == sorted(
        [f"near{at}" for at in range(200)] + [f"far{at}" for at in range(1, 5)]
    )


def test_what_is_published_while_the_log_is_rewritten_does_not_come_back() -> None:
    stage = rewriting_stage()
    for at in range(150):
        stage.delay(f"r{at}", 5_000 + 7 * at, id=4 * at)
    for at in range(400):
        delay_id = stage.delay(f"x{at}", 60_000, id=4 * (1_000 + at))
        stage.cancel(delay_id)

    stage.pass_ms(30_000)
    assert max(log_starts(stage)) > 0
    assert stage.pending() == 0
    assert sorted(stage.values()) == sorted(f"r{at}" for at in range(150))
