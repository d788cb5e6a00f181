"""Several hundred members: joining at once, idling, and one change that everybody is told."""

import resource
from uuid import UUID

from benchmarks.scale.members import VOTERS, Members, Meter, name_of
from penstock.core.metadata import CreateTopic
from penstock.core.model import MILLISECOND, TopicId

IDLE_MS = 2_000
TOPICS = 20


def run(count: int, meter: Meter) -> dict[str, float]:
    members = Members(meter)
    members.start(*VOTERS)
    members.until(lambda: members.leader() is not None)
    members.start(*range(len(VOTERS) + 1, count + 1))
    meter.take()
    joined_ms = members.until(lambda: _live(members) == count, seconds=300, step_ms=100)
    joining = meter.take()
    leader = members.leader()
    assert leader is not None
    members.settle()
    members.world.run(IDLE_MS * MILLISECOND)
    idle = meter.take()
    commands = [CreateTopic(f"t-{n}", TopicId(UUID(int=n + 1)), 50, 3) for n in range(TOPICS)]
    members.submit(leader, *commands)
    told_ms = members.until(
        lambda: all(members.image(n).partition_count for n in range(1, count + 1)), step_ms=1
    )
    telling = meter.take()
    others = [name for name in idle if name != name_of(leader)]
    return {
        "members": float(count),
        "joined_virtual_ms": joined_ms,
        "joined_leader_cpu_ms": joining[name_of(leader)] / 1e6,
        "joined_member_cpu_ms": sum(joining[name] for name in others) / len(others) / 1e6,
        "idle_leader_cpu_percent": idle[name_of(leader)] / (IDLE_MS * MILLISECOND) * 100,
        "idle_member_cpu_percent": sum(idle[name] for name in others)
        / len(others)
        / (IDLE_MS * MILLISECOND)
        * 100,
        "told_partitions": float(TOPICS * 50),
        "told_virtual_ms": told_ms,
        "told_leader_cpu_ms": telling[name_of(leader)] / 1e6,
        "told_member_cpu_ms": sum(telling.get(name, 0) for name in others) / len(others) / 1e6,
        "process_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
    }


def _live(members: Members) -> int:
    leader = members.leader()
    return 0 if leader is None else len(members.image(leader).live_brokers())
