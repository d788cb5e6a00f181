"""Slow work off the loop: threads for blocking disk calls, processes for computing.

A thread that computes takes the GIL from the loop for milliseconds at a time, so the
disk lane is for calls that release it. Compaction, backup and search run in worker
processes, which get a pickled function and send back a pickled result; a worker dies
with its node, even when the node is killed, because two writers in one data
directory would be worse than none.

Left out: progress reports from running work, and stopping it half-way (it is killed
with the node).
"""

from penstock.runtime.spawn.lanes import LaneOptions, Lanes

__all__ = ["LaneOptions", "Lanes"]
