"""The production quorum with the whole metadata, in virtual time: what a loss costs until all is decided.

Three members are there; the other brokers are registered and never heard of, so their sessions
are endless. The brokers that are lost are members, whose end is noticed as it is in production.
"""

from benchmarks.scale.members import VOTERS, Members, Meter, name_of
from benchmarks.scale.shape import Shape
from penstock.broker.cluster import BrokerSessionOptions
from penstock.core.metadata import RegisteredBroker, UnfenceBroker
from penstock.core.model import ApiError, NodeId

ENDLESS = BrokerSessionOptions(session_ms=1_000_000_000)
CHUNK = 100


def run(shape: Shape, meter: Meter) -> dict[str, float]:
    members = Members(meter, ENDLESS)
    members.start(*VOTERS)
    members.until(lambda: all(life.is_live for life in members.lives.values()) and len(members.lives) == 3)
    results = _fill(members, shape)
    leader = members.leader()
    assert leader is not None
    follower = next(number for number in VOTERS if number != leader)
    members.settle()
    results |= _lose_broker(members, follower, leader)
    members.settle()
    members.world.nodes[name_of(follower)].start()
    members.until(lambda: members.image(leader).is_live(follower))
    results["restart_cpu_ms"] = meter.take()[name_of(follower)] / 1e6
    members.settle()
    results |= _lose_controller(members, leader)
    members.world.nodes[name_of(leader)].start()
    members.until(lambda: all(members.image(number).is_live(leader) for number in VOTERS))
    results["controller_silent_elected_virtual_ms"] = _silence_controller(members)
    return results


def _fill(members: Members, shape: Shape) -> dict[str, float]:
    """Brokers that exist on paper, and every topic."""
    leader = members.leader()
    assert leader is not None
    cluster_id = members.image(leader).cluster_id
    assert cluster_id is not None
    begin = members.now
    members.meter.take()
    others = range(len(VOTERS) + 1, shape.brokers + 1)
    paper = [shape.registration(number, cluster_id, has_peer_port=False) for number in others]
    replies = members.submit(leader, *paper)
    unfence = [
        UnfenceBroker(NodeId(number), reply.epoch)
        for number, reply in zip(others, replies, strict=True)
        if isinstance(reply, RegisteredBroker)
    ]
    members.submit(leader, *unfence)
    commands = list(shape.creations())
    for start in range(0, len(commands), CHUNK):
        for reply in members.submit(leader, *commands[start : start + CHUNK]):
            assert not isinstance(reply, ApiError), reply
    spent = members.meter.take()
    return {
        "filled_virtual_ms": (members.now - begin) / 1e6,
        "filled_leader_cpu_ms": spent[name_of(leader)] / 1e6,
        "filled_follower_cpu_ms": max(ns for name, ns in spent.items() if name != name_of(leader)) / 1e6,
    }


def _lose_broker(members: Members, lost: int, leader: int) -> dict[str, float]:
    """Kill a member that leads partitions; the rest must agree on who leads them now."""
    witness = next(number for number in VOTERS if number not in (lost, leader))
    led = sum(partition.leader == lost for _, partition in members.image(leader).partitions_of(NodeId(lost)))
    members.world.nodes[name_of(lost)].kill()
    virtual_ms = members.until(
        lambda: not any(members.image(number).is_live(lost) for number in (leader, witness)), step_ms=1
    )
    spent = members.meter.take()
    return {
        "broker_lost_leaderships": float(led),
        "broker_lost_virtual_ms": virtual_ms,
        "broker_lost_leader_cpu_ms": spent[name_of(leader)] / 1e6,
        "broker_lost_witness_cpu_ms": spent[name_of(witness)] / 1e6,
    }


def _lose_controller(members: Members, leader: int) -> dict[str, float]:
    """Kill the leader of the quorum, which is a broker too."""
    members.world.nodes[name_of(leader)].kill()
    elected_ms = members.until(lambda: members.leader() is not None, step_ms=1)
    successor = members.leader()
    assert successor is not None
    decided_ms = members.until(lambda: not members.image(successor).is_live(leader), step_ms=1)
    spent = members.meter.take()
    return {
        "controller_lost_elected_virtual_ms": elected_ms,
        "controller_lost_decided_virtual_ms": elected_ms + decided_ms,
        "controller_lost_successor_cpu_ms": spent[name_of(successor)] / 1e6,
    }


def _silence_controller(members: Members) -> float:
    """Cut the power of the leader of the quorum: nothing says that it is gone but its silence."""
    leader = members.leader()
    assert leader is not None
    members.settle()
    members.world.nodes[name_of(leader)].cut_power()
    return members.until(lambda: members.leader() is not None, step_ms=1)
