"""After the last fault: whether the cluster has come to rest, and what is left in it."""

from collections.abc import Iterator

from penstock.broker.fetch import FetchedPartition, FetchLimits, FetchPartition
from penstock.core.model import Offset
from penstock.server.kafka.backend import Backend
from penstock.simulation.checkers.durability import read_back
from penstock.simulation.checkers.log import check_log
from penstock.simulation.checkers.replicas import Copy, check_replicas
from penstock.simulation.cluster.journal import Place
from penstock.simulation.cluster.node import ClusterNode
from penstock.simulation.cluster.world import ClusterWorld
from penstock.simulation.values import values_of
from penstock.storage.log import PartitionLog

READ_BYTES = 1 << 20


def unsettled(cluster: ClusterWorld) -> Iterator[str]:
    """Everything that keeps a cluster from being at rest, though nothing is broken any more."""
    for node in cluster.nodes.values():
        if node.backend is None:
            yield f"{node.machine.name} is not ready"
            return
    committed = {node.machine.name: _backend(node).controller.committed for node in cluster.nodes.values()}
    if len(frozenset(committed.values())) > 1:
        yield f"metadata is not the same everywhere: {committed}"
        return
    for place in _all_places(cluster):
        trouble = _unsettled_place(cluster, place)
        if trouble is not None:
            yield f"{place[0]}/{place[1]}: {trouble}"


def _all_places(cluster: ClusterWorld) -> list[Place]:
    image = cluster.newest_image()
    assert image is not None
    return [
        (str(topic.name), partition.index) for topic in image.each_topic() for partition in topic.partitions
    ]


def _unsettled_place(cluster: ClusterWorld, place: Place) -> str | None:
    image = cluster.newest_image()
    assert image is not None
    partition = image.partition(*place)
    assert partition is not None
    leader = cluster.nodes.get(partition.leader)
    if leader is None:
        return "nobody leads"
    led = _backend(leader).partitions.find(*place)
    if led is None or led.leader_epoch != partition.leader_epoch or led.stopped is not None:
        return f"node {partition.leader} should lead, and does not"
    if len(partition.isr) < len(partition.replicas):
        return f"in sync are {partition.isr} of {partition.replicas}"
    ends = {node_id: log.end for node_id, log in logs_of(cluster, place).items()}
    if len(ends) < len(partition.replicas) or len(frozenset(ends.values())) > 1:
        return f"logs end at {ends}"
    if led.high_watermark != led.log.end:
        return f"the high watermark is {led.high_watermark}, the log ends at {led.log.end}"
    return None


def logs_of(cluster: ClusterWorld, place: Place) -> dict[int, PartitionLog]:
    """Every replica's log of a partition, by node."""
    logs = {}
    for node in cluster.nodes.values():
        if node.backend is not None:
            found = node.backend.partitions.find_log(*place)
            if found is not None:
                logs[int(node.node_id)] = found.log
    return logs


def judge(cluster: ClusterWorld) -> list[str]:
    """Read everything there is, and compare it with what clients were told."""
    anomalies: list[str] = []
    for place in _all_places(cluster):
        image = cluster.newest_image()
        partition = None if image is None else image.partition(*place)
        assert partition is not None
        backend = _backend(cluster.nodes[partition.leader])
        if place in cluster.journal.logs:
            history = cluster.journal.logs[place]
            found = check_log(history, read_to_the_end(backend, place))
            anomalies += [f"{place[0]}/{place[1]} {anomaly}" for anomaly in found]
        led = backend.partitions.find(*place)
        assert led is not None
        copies = {node: _copy(log) for node, log in logs_of(cluster, place).items()}
        anomalies += check_replicas(f"{place[0]}/{place[1]}", copies, led.high_watermark)
    for node in cluster.nodes.values():
        node.shows_metadata()
        if node.protocol_errors:
            # No client of ours breaks the protocol.
            anomalies.append(f"protocol error: {node.machine.name} closed {node.protocol_errors} connections")
    return anomalies


def _copy(log: PartitionLog) -> Copy:
    found = read_back(log)
    return Copy(found.start, found.end, found.batches)


def read_to_the_end(backend: Backend, place: Place) -> list[tuple[int, bytes]]:
    """Every record of a partition that its leader gives to consumers."""
    partition = backend.partitions.find(*place)
    assert partition is not None
    final: list[tuple[int, bytes]] = []
    at, end = partition.log.start, partition.high_watermark
    limits = FetchLimits(min_bytes=1, max_bytes=READ_BYTES, max_wait_ms=0)
    while at < end:
        found: list[FetchedPartition] = []
        backend.fetching.fetch([FetchPartition(partition, at, READ_BYTES)], limits, found.extend)
        content = b"" if not found or found[0].records is None else found[0].records.to_bytes()
        more = [pair for pair in values_of(content) if pair[0] >= at]
        if not more:
            break
        final += more
        at = Offset(more[-1][0] + 1)
    return final


def _backend(node: ClusterNode) -> Backend:
    assert node.backend is not None
    return node.backend
