"""The log of `__delayed` is kept short, and what is pending survives that, also with a transaction open."""

from penstock.broker.coordinator import delay_records
from penstock.broker.coordinator.runtime import CoordinatorOptions
from penstock.broker.delays.delay_view import DelayRequest
from penstock.core.delays import DelaysStored
from penstock.core.metadata import DELAYED_TOPIC
from penstock.core.model import Timestamp
from penstock.core.records.builder import pack_body
from tests.unit.broker.delays.delay_stage import DelayStage
from tests.unit.broker.queues.queue_stage import TOPIC


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
    return [start for start, _ in stage.delayed_logs()]


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


def test_what_is_left_of_several_requests_is_written_together() -> None:
    stage = rewriting_stage()
    stage.create("other")
    kept: list[str] = []
    for number in range(30):
        due = Timestamp(stage.wall() + 100_000)
        requests = [
            DelayRequest(topic, due, pack_body(None, f"{number}-{at}".encode()), id=4 * (100 * number + at))
            for at, topic in enumerate([TOPIC] * 10 + ["other"] * 10)
        ]
        ids = [each for each in stage.delay_all(requests) if isinstance(each, str)]
        for delay_id in ids[:19]:
            assert stage.cancel(delay_id) is None
        kept += ids[19:]
    stage.until(lambda: max(log_starts(stage)) > 0)

    facts = [delay_records.decode(each.key, each.value) for each in stage.committed(DELAYED_TOPIC)]
    stored = [fact.records for fact in facts if isinstance(fact, DelaysStored)]
    assert max(len({each // 400 for each in records.ids}) for records in stored) > 5
    assert sorted(stage.listed("other")) == sorted(kept)
    stage.world.nodes["n1"].kill()
    stage.nodes[1].backend = None
    stage.world.nodes["n1"].start()
    stage.until(lambda: stage.nodes[1].backend is not None and stage.pending() == len(kept))
    stage.pass_ms(150_000)
    assert sorted(stage.values("other")) == sorted(f"{number}-19" for number in range(30))
    assert stage.values() == []
