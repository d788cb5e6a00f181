"""What is acknowledged behind the barrier counts on every broker that serves anybody."""

import pytest

from penstock.broker.cluster.live_brokers_barrier import LiveBrokersBarrier
from penstock.core.metadata import Ok
from penstock.core.metadata.access import AclBinding, AclOperation, AclPermission, PatternType, ResourceType
from penstock.core.metadata.commands import CreateAcls
from penstock.core.model import MILLISECOND
from tests.support.recorded_events import recorded_events
from tests.unit.broker.cluster.cluster_stage import ClusterStage, cluster_of

RULE = AclBinding(
    ResourceType.TOPIC,
    PatternType.LITERAL,
    "orders",
    "User:alice",
    "*",
    AclOperation.READ,
    AclPermission.ALLOW,
)
SESSION_MS = 2_000


def barriers_of(stage: ClusterStage) -> dict[str, LiveBrokersBarrier]:
    found = {}
    for name, life in stage.incarnations.items():
        member = life.member
        runtime = member._runtime
        found[name] = LiveBrokersBarrier(runtime, member.rpc, member.controller, member.me.node_id)
    return found


def knows(stage: ClusterStage, name: str) -> bool:
    return RULE in stage.image(name).acls


@pytest.mark.parametrize("seed", range(5))
def test_every_broker_has_what_is_behind_the_barrier(seed: int) -> None:
    stage = cluster_of(3, seed)
    barriers = barriers_of(stage)
    asked, other = stage.leader(), stage.followers()[0]
    for node in (asked, other):
        seen: list[list[bool]] = []
        committed: list[list[bool]] = []

        def look(seen: list[list[bool]]) -> None:
            seen.append([knows(stage, name) for name in stage.options])

        def replied(_: object, node: str = node, seen: list[list[bool]] = seen) -> None:
            look(committed)  # noqa: B023 - called before the next round
            barriers[node].wait(lambda: look(seen))

        stage.member(node).controller.submit(CreateAcls((RULE,)), replied)
        stage.until(lambda: bool(seen))  # noqa: B023 - called at once
        assert seen == [[True] * 3]
        if node == asked:
            # It takes waiting: what is committed here is not yet known everywhere.
            assert False in committed[0]


def test_a_broker_that_does_not_reply_has_no_lease_when_the_wait_is_over() -> None:
    stage = cluster_of(3)
    barriers = barriers_of(stage)
    leader, silent = stage.leader(), stage.followers()[0]
    for name in stage.options:
        if name != silent:
            stage.world.network.cut(name, silent)
            stage.world.network.cut(silent, name)
    clock = stage.incarnations[leader].clock
    began = clock.now()
    states: list[tuple[bool, bool]] = []

    def over() -> None:
        states.append((knows(stage, silent), stage.incarnations[silent].has_lease))

    assert isinstance(stage.submit(leader, CreateAcls((RULE,))), Ok)
    assert stage.incarnations[silent].has_lease
    with recorded_events() as events:
        barriers[leader].wait(over)
        stage.until(lambda: bool(states))

    assert states == [(False, False)]
    assert len(events.named("metadata.not_everywhere")) == 1
    assert clock.now() - began < 2 * SESSION_MS * MILLISECOND


def test_a_lone_broker_waits_for_nobody() -> None:
    stage = cluster_of(1)
    (barrier,) = barriers_of(stage).values()
    done: list[bool] = []

    barrier.wait(lambda: done.append(True))

    assert done == [True]
