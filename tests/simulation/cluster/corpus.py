"""Seeds that together visit nearly everything that runs come across.

    python -m tests.simulation.cluster.corpus 200     choose them anew, out of so many seeds

Any change of the code deals other cards: then a seed visits something else, and the corpus is chosen
anew now and then. `corpus.json` has the seeds, each with what it was kept for.
"""

import json
import sys
from collections import Counter
from pathlib import Path

from penstock.sim.cluster import run_cluster

CORPUS = Path(__file__).with_name("corpus.json")
SEEDS_MAX = 8


def choose(runs: int) -> dict[str, list[str]]:
    """Greedily: each time the seed that visits most of what is not visited yet."""
    visited = {seed: set(run_cluster(seed).visited) for seed in range(1, runs + 1)}
    common = Counter(name for names in visited.values() for name in names)
    chosen: dict[str, list[str]] = {}
    left = set(common)
    while left and len(chosen) < SEEDS_MAX:
        seed = max(visited, key=lambda seed: (len(visited[seed] & left), -seed))
        chosen[str(seed)] = sorted(visited[seed] & left)
        left -= visited[seed]
    return chosen


def main() -> None:
    CORPUS.write_text(json.dumps(choose(int(sys.argv[1])), indent=1) + "\n")


if __name__ == "__main__":
    main()
