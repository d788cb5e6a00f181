"""One run: a cluster comes up, is used and mistreated, is left alone, and is judged."""

import random
from collections.abc import Callable
from dataclasses import replace

from penstock.core.metadata import OFFSETS_TOPIC
from penstock.core.model import MILLISECOND, SECOND
from penstock.simulation.cluster.ending import judge, unsettled
from penstock.simulation.cluster.node import BrokerProcess, MakeProcess
from penstock.simulation.cluster.options import TOPIC, ClusterOptions
from penstock.simulation.cluster.world import ClusterWorld
from penstock.simulation.faults import ANYWHERE, Aim, Damage, FaultKind, FaultPlan, Nemesis, draw_weather
from penstock.simulation.verdict import Verdict
from penstock.simulation.world import World

CREATION_NS = 20 * SECOND
LOOK_NS = 50 * MILLISECOND
# In a ring of three everybody hears everybody.
RING_NEEDS = 3
DAMAGED_RUNS = 0.15


def is_replicated(path: str) -> bool:
    """Whether other nodes have what is in a file: that of a partition that clients use, or of the quorum."""
    return path.startswith((f"logs/{TOPIC}/", f"logs/{OFFSETS_TOPIC}/", "meta/raft/"))


def draw_plan(luck: random.Random, nodes: int) -> FaultPlan:
    """A plan for whole nodes with clients: shorter than for single services, and aimed."""
    kinds = list(ANYWHERE if nodes == 1 else (*ANYWHERE, FaultKind.ROLLING_RESTART))
    if nodes <= RING_NEEDS:
        kinds.remove(FaultKind.RING)
    drawn = tuple(luck.sample(kinds, luck.randint(1, 5)))
    if nodes > 1 and luck.random() < DAMAGED_RUNS:
        drawn = (*drawn, luck.choice((FaultKind.DAMAGE, FaultKind.DAMAGE, FaultKind.NEW_DISK)))
    weather = draw_weather(luck)
    every_ns = luck.choice((150, 400, 1_000)) * MILLISECOND
    lasting_ns = luck.choice((100, 400, 1_500)) * MILLISECOND
    aims = luck.choice(((Aim.ANYBODY,), (Aim.ANYBODY, Aim.LEADER), (Aim.LEADER, Aim.CONTROLLER)))
    return FaultPlan(drawn, every_ns, lasting_ns, weather, aims, patient=luck.random() < 0.5)


def options_for(seed: int, nodes: int | None = None) -> ClusterOptions:
    """The workload that is drawn from a seed, on as many nodes as somebody wishes."""
    drawn = ClusterOptions.draw(World(seed).random("options"))
    return drawn if nodes is None else replace(drawn, nodes=nodes)


def run_cluster(
    seed: int, options: ClusterOptions | None = None, make: MakeProcess = BrokerProcess
) -> Verdict:
    """Run one cluster to its end and judge it. The same arguments give the same verdict."""
    options = options or options_for(seed)
    cluster = ClusterWorld(seed, options, make)
    world = cluster.world
    plan = options.plan or draw_plan(world.random("plan"), options.nodes)
    damage = Damage(world.random("damage"), list(world.nodes.values()), is_replicated)
    nemesis = Nemesis(world, plan, cluster.find, cluster.works, damage)
    unfinished = _live(cluster, nemesis)
    anomalies = [*world.failures, *cluster.journal.anomalies(), *unfinished]
    return Verdict(
        seed=seed,
        anomalies=tuple(anomalies),
        operations=cluster.journal.operations,
        acknowledged=cluster.journal.acknowledged,
        events=world.scheduler.events,
        virtual_ms=world.scheduler.now // MILLISECOND,
        faults=dict(sorted(nemesis.counts.items())),
        trace=world.trace.digest(),
    )


def _live(cluster: ClusterWorld, nemesis: Nemesis) -> list[str]:
    world, options = cluster.world, cluster.options
    world.start_all()
    cluster.creator.start()
    if not _wait(cluster, CREATION_NS, lambda: cluster.creator.finished):
        return [] if cluster.has_failed else ["stuck: there is no topic to work with"]
    cluster.start_clients()
    nemesis.begin()
    _wait(cluster, options.faulty_ns, lambda: False)
    # Where little was done, the trouble goes on for a while; and nobody is done before enough is promised.
    _wait(cluster, 2 * options.faulty_ns, cluster.has_acknowledged)
    nemesis.end()
    if not _wait(cluster, options.healing_ns, cluster.works_again):
        return _stuck(cluster, "after the last fault")
    cluster.finish_producers()
    if not _wait(cluster, options.healing_ns, cluster.clients_are_done):
        return _stuck(cluster, "after the last fault")
    cluster.stop_clients()
    if not _settle(cluster):
        return _stuck(cluster, "after the last request")
    # Whatever is in memory only, the last power cut takes.
    for node in world.nodes.values():
        node.cut_power()
    if not _settle(cluster):
        return _stuck(cluster, "after the last power cut")
    return judge(cluster)


def _wait(cluster: ClusterWorld, duration_ns: int, enough: Callable[[], bool]) -> bool:
    """Let time pass until it is enough, or something is wrong for good."""
    end = cluster.world.scheduler.now + duration_ns
    while not enough():
        left = end - cluster.world.scheduler.now
        if left <= 0 or cluster.has_failed:
            return False
        cluster.world.run(min(LOOK_NS, left))
        cluster.restart_where_disks_failed()
    return not cluster.has_failed


def _settle(cluster: ClusterWorld) -> bool:
    """Wait for the cluster to come to rest; nodes that ended of a fault are started again."""

    def settled() -> bool:
        cluster.world.start_all()
        return next(unsettled(cluster), None) is None

    return _wait(cluster, cluster.options.healing_ns, settled)


def _stuck(cluster: ClusterWorld, when: str) -> list[str]:
    if cluster.has_failed:
        return []
    trouble = next(cluster.waiting_clients(), None) or next(unsettled(cluster), "nothing seems wrong")
    return [f"stuck: {trouble}, {cluster.options.healing_ns // SECOND} s {when}"]
