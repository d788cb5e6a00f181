"""Files that rot: a bit flips, or the end is gone, while the node is down.

Only ever on one node of a world: what a minority has lost the others still have, and more
cannot be asked of any replication. Of segments, only full ones are damaged, and lose their ends:

* A bit that flips in the middle of an old one is noticed by whoever reads it, not by a start.
* The end of the newest one may be torn after any power cut, and is cut back without a word. A disk
  that takes what was synced from there cannot be told from one that was writing; nobody who trusts
  syncs survives that.
"""

import itertools
import random
from collections.abc import Callable, Sequence

from penstock.simulation.node import SimulatedNode
from penstock.storage.disk import CrashableDisk

PathFilter = Callable[[str], bool]
SEGMENT = ".log"


class Damage:
    """Spoils files of one node."""

    def __init__(self, luck: random.Random, nodes: Sequence[SimulatedNode], spoils: PathFilter) -> None:
        self._luck = luck
        self._spoils = spoils
        self.victim = luck.choice(nodes)
        self.done: list[str] = []

    def strike(self) -> None:
        """Damage one file; the node is down."""
        assert not self.victim.is_up
        disk = self.victim.disk
        files = disk.files()
        # Sorted as they are, the next one of a full segment's kind is in the same directory.
        segments = [path for path in files if path.endswith(SEGMENT)]
        newest = [
            path
            for path, following in itertools.zip_longest(segments, segments[1:], fillvalue="")
            if path.rpartition("/")[0] != following.rpartition("/")[0]
        ]
        paths = [path for path in files if self._spoils(path) and path not in newest and disk.size(path) > 0]
        if paths:
            path = self._luck.choice(paths)
            self.done.append(f"{path}: {self._spoil(disk, path)}")

    def _spoil(self, disk: CrashableDisk, path: str) -> str:
        size = disk.size(path)
        if not path.endswith(SEGMENT) and self._luck.random() < 0.5:
            bit = self._luck.randrange(8 * size)
            disk.flip_bit(path, bit)
            return f"bit {bit} flipped"
        kept = self._luck.randrange(size)
        disk.cut_short(path, kept)
        return f"cut from {size} to {kept} bytes"
