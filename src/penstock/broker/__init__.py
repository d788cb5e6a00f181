"""Use cases: what a node does for those who ask, whichever door they came through.

Services coordinate machines from `core` and logs from `storage`. They see the world only
through the runtime port and a disk, call back instead of waiting, and answer refusals as
values, so that the same code runs on sockets and inside the simulator.
"""
