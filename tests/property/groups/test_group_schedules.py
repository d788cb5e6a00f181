"""Random schedules of joins, syncs, heartbeats, leaves, crashes, replacements and failovers."""

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.property.groups.group_world import CLIENTS, Client, World

ACTIONS: tuple[Callable[[World, Client], None], ...] = (
    *[World.react] * 8,  # well-behaved most of the time
    *[World.calm] * 3,
    World.join,
    World.heartbeat,
    World.commit,
    World.leave,
    World.crash,
    World.change_topics,
    World.haunt,
)

client_steps = st.tuples(st.sampled_from(ACTIONS), st.integers(0, CLIENTS - 1), st.just(0))
time_steps = st.tuples(st.none(), st.just(0), st.sampled_from([1, 500, 1_000, 4_000, 9_999, 16_000]))
schedules = st.lists(st.one_of(client_steps, client_steps, client_steps, time_steps), max_size=60)


def play(world: World, schedule: list[tuple[Callable[[World, Client], None] | None, int, int]]) -> None:
    for action, number, ms in schedule:
        if action is None:
            world.pass_time(ms)
        else:
            action(world, world.clients[number])
        world.check()


@settings(max_examples=150, deadline=None)
@given(schedules)
def test_whatever_clients_do_a_group_keeps_its_guarantees(
    schedule: list[tuple[Callable[[World, Client], None] | None, int, int]],
) -> None:
    world = World()

    play(world, schedule)

    world.check_every_request_is_answered()
    world.check()


@pytest.mark.parametrize("seed", range(12))
def test_long_histories_with_failovers_keep_the_guarantees(seed: int) -> None:
    generator = random.Random(seed)
    world = World()

    for _ in range(400):
        if generator.random() < 0.01:
            world.fail_over()
        elif generator.random() < 0.25:
            world.pass_time(generator.choice([1, 500, 1_000, 4_000, 9_999]))
        else:
            generator.choice(ACTIONS)(world, generator.choice(world.clients))
        world.check()

    assert world.commits > 0
    world.check_every_request_is_answered()


@pytest.mark.parametrize("seed", range(5))
def test_well_behaved_clients_settle(seed: int) -> None:
    """Liveness: whatever happened before, clients that follow the protocol end in a stable group."""
    generator = random.Random(seed)
    world = World()
    for _ in range(150):
        generator.choice(ACTIONS)(world, generator.choice(world.clients))
        world.pass_time(generator.choice([1, 500, 4_000]))

    members = world.clients[:5]  # as many as the group may have
    for client in world.clients[5:]:
        world.crash(client)
    for _ in range(60):
        for client in members:
            world.react(client)
        world.pass_time(1_000)

    described = world.driver.describe()
    assert described.state.value == "Stable"
    assert {m.member_id for m in described.members} == {c.member_id for c in members}
    assert all(c.generation == members[0].generation for c in members)
