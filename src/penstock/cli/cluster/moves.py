"""Reassignments under way, and how far they are."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.cli.cluster.overview import Move, Partition, Registered

if TYPE_CHECKING:
    from penstock.cli.cluster.asking import ClusterDoor

MOVE_COLUMNS = ("partition", "replicas", "adding", "removing", "done")


def moves_of(
    door: "ClusterDoor", registered: dict[int, Registered], partitions: Sequence[Partition]
) -> list[Move]:
    """What moves, and how far it is: each broker concerned is asked what it holds."""
    from penstock.cli.cluster.asking import sizes_on

    moves = door.moves()
    leaders = {(one.topic, one.partition): one.leader for one in partitions}
    concerned: dict[int, list[tuple[str, int]]] = {}
    for move in moves:
        place = move.topic, move.partition
        for node_id in {*move.adding, leaders.get(place)}:
            if node_id in registered:
                concerned.setdefault(node_id, []).append(place)
    sizes = {node_id: sizes_on(registered[node_id].address, places) for node_id, places in concerned.items()}

    def held(node_id: int | None, place: tuple[str, int]) -> int:
        return 0 if node_id is None else sizes.get(node_id, {}).get(place, 0)

    def measured(move: Move) -> Move:
        place = move.topic, move.partition
        whole = held(leaders.get(place), place)
        done = sum(min(whole, held(node_id, place)) for node_id in move.adding)
        return replace(move, bytes_done=done, bytes_all=whole * len(move.adding))

    return [measured(move) for move in moves]


def move_row(one: Move) -> tuple[object, ...]:
    return one.name, ids(one.replicas), ids(one.adding), ids(one.removing), f"{one.percent}%"


def ids(nodes: Sequence[int]) -> str:
    return ",".join(map(str, nodes)) or "-"
