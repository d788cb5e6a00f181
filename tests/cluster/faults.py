"""Three nodes under load and one kind of fault, again and again.

    python -m tests.cluster.faults pause --rounds 10

    pause      SIGSTOP for the leader of a partition, longer than its session; then SIGCONT
    rolling    every node is stopped in order and started again, one after the other
    cut        a node, or a leader, and the others hear nothing of each other; clients reach both sides
    deaf       a leader sends and hears nothing
    mute       a leader hears and cannot send

At the end everything is read and judged by the simulator's checker. Figures are the longest wait of
a partition for the next accepted write, in each round.
"""

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

from tests.cluster.stage import PARTITIONS, TOPIC, Stage, Verdict, moment, stage
from tests.support.network import Network, network_of

# Longer than the two seconds of a broker's session.
FAULT_SECONDS = 4.0

Fault = Callable[[Stage, random.Random, Network | None], float]


def pause(on: Stage, luck: random.Random, _network: Network | None) -> float:
    """Stop a leader's process; the others must take over, and it must not disturb them when it wakes up."""
    leader = on.cluster.leader_of(TOPIC, luck.randrange(PARTITIONS))
    led = on.led_by(leader)
    began = moment()
    on.cluster.nodes[leader].pause()
    try:
        waited = on.outage(began, led)
        time.sleep(max(0.0, FAULT_SECONDS - (moment() - began) / 1e9))
    finally:
        on.cluster.nodes[leader].resume()
    return waited


def rolling(on: Stage, luck: random.Random, _network: Network | None) -> float:
    """Stop and start every node; writes may wait for a new leader, and no longer."""
    longest = 0.0
    for number in sorted(on.cluster.nodes, key=lambda _: luck.random()):
        on.await_in_sync()
        began = moment()
        code = on.cluster.nodes[number].stop()
        if code:
            on.verdict.anomalies.append(f"node {number} ended with {code}")
        longest = max(longest, on.outage(began, range(PARTITIONS)))
        on.cluster.nodes[number].start()
    return longest


def cut(on: Stage, luck: random.Random, network: Network | None) -> float:
    """Cut a node off from the others; every other time one that leads the metadata quorum."""
    assert network is not None
    leads = luck.random() < 0.5
    number = on.cluster.controller() if leads else on.cluster.leader_of(TOPIC, luck.randrange(PARTITIONS))
    return _while(on, network, lambda: network.cut_off(number))


def deaf(on: Stage, luck: random.Random, network: Network | None) -> float:
    """Let a leader hear nothing of the others, who hear it."""
    assert network is not None
    leader = on.cluster.leader_of(TOPIC, luck.randrange(PARTITIONS))
    others = [number for number in on.cluster.nodes if number != leader]

    def break_it() -> None:
        for other in others:
            network.cut(other, leader)

    return _while(on, network, break_it)


def mute(on: Stage, luck: random.Random, network: Network | None) -> float:
    """Let the others hear nothing of a leader, who hears them."""
    assert network is not None
    leader = on.cluster.leader_of(TOPIC, luck.randrange(PARTITIONS))
    others = [number for number in on.cluster.nodes if number != leader]

    def break_it() -> None:
        for other in others:
            network.cut(leader, other)

    return _while(on, network, break_it)


def _while(on: Stage, network: Network, break_it: Callable[[], None]) -> float:
    began = moment()
    break_it()
    try:
        waited = on.outage(began, range(PARTITIONS))
        time.sleep(max(0.0, FAULT_SECONDS - (moment() - began) / 1e9))
    finally:
        network.heal()
    return waited


FAULTS: dict[str, Fault] = {"pause": pause, "rolling": rolling, "cut": cut, "deaf": deaf, "mute": mute}
NEED_NETWORK = ("cut", "deaf", "mute")


def run_faults(
    root: Path, names: list[str], rounds: int, seed: int = 1, rate: int = 600
) -> tuple[list[tuple[str, float]], Verdict]:
    """Each of the faults in turn, `rounds` times; returns the waits and what was found at the end."""
    luck, waits = random.Random(seed), []
    needs_network = any(name in NEED_NETWORK for name in names)
    with (
        network_of(3) if needs_network else nullcontext() as network,
        stage(root, rate=rate, network=network) as on,
    ):
        for _ in range(rounds):
            for name in names:
                on.await_in_sync()
                waits.append((name, FAULTS[name](on, luck, network)))
        on.await_in_sync()
        return waits, on.finish()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("faults", nargs="+", choices=FAULTS)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=int, default=600, help="records per second")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="penstock-faults-") as root:
        waits, verdict = run_faults(Path(root), given.faults, given.rounds, given.seed, given.rate)
    for name in given.faults:
        ordered = sorted(seconds for fault, seconds in waits if fault == name)
        print(f"{name}: next write p50 {ordered[len(ordered) // 2]:.2f} s, max {ordered[-1]:.2f} s")
    print(f"{verdict.sent} sent, {verdict.acknowledged} acknowledged, {verdict.read} read by the group")
    print("\n".join(verdict.anomalies[:20] or ["nothing lost, doubled, moved or out of order"]))
    print("\n".join(verdict.failed[:5]))
    return 0 if verdict.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
