"""The in-sync replicas against a model, with proposals that are late, doubled, lost or unheard of."""

import pytest

from tests.property.replica.insync_world import World

STEPS = 400


@pytest.mark.parametrize("seed", range(150))
def test_whoever_may_be_elected_has_all_that_is_below_the_high_watermark(seed: int) -> None:
    world = World(seed)

    for _ in range(STEPS):
        world.step()


def test_the_histories_are_not_idle() -> None:
    worlds = [World(seed) for seed in range(40)]

    for world in worlds:
        before = world.watermark
        for _ in range(STEPS):
            world.step()
        assert world.watermark >= before

    assert sum(world.joined for world in worlds) > 100
    assert sum(world.left for world in worlds) > 100
    assert sum(world.watermark > world.start for world in worlds) > 20
