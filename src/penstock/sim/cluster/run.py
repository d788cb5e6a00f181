"""One run: a cluster starts, is used under faults, settles, and is checked."""

import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

from penstock.broker.fetch import FetchedPartition, FetchLimits, FetchPartition
from penstock.broker.partitions import FsyncMode, LeaderPartition
from penstock.broker.queues.dead_letters import dead_letter_topic
from penstock.core.metadata import OFFSETS_TOPIC, QUEUES_TOPIC, TRANSACTIONS_TOPIC
from penstock.core.metadata import Partition as PartitionState
from penstock.core.metadata.topic_names import INTERNAL_TOPICS
from penstock.core.model import MILLISECOND, SECOND, CorruptionError, Offset
from penstock.core.queues import REDRIVE_GROUP
from penstock.core.queues.record_headers import ATTEMPTS, ORIGIN_OFFSET
from penstock.server.kafka.backend import Backend
from penstock.sim.checkers.durability import read_back
from penstock.sim.checkers.log import check_compacted_copy, check_log
from penstock.sim.checkers.queues import DeadLetterCopy, RedrivenPartition
from penstock.sim.checkers.replicas import ReplicaCopy, check_replicas
from penstock.sim.checkers.transactions import LogEntry, LoggedMarker, LoggedRecord, aborted_in
from penstock.sim.clocks import WORLD_BEGINS_MS
from penstock.sim.cluster.journal import Place
from penstock.sim.cluster.node import ClusterNode, MakeProcess, SimulatedBroker
from penstock.sim.cluster.options import JOBS, PRIVATE, REDRIVEN, TOPIC, TRANSFERS, SimulatedClusterOptions
from penstock.sim.cluster.world import ClusterWorld
from penstock.sim.faults import (
    ANYWHERE,
    DAMAGES,
    FaultKind,
    FaultPlan,
    FaultTarget,
    FileCorruptor,
    Nemesis,
    draw_weather,
)
from penstock.sim.values import OpenBatch, batches_of, end_of, read_all_records, values_of
from penstock.sim.world import EVERYTHING, RunResult, World
from penstock.storage.log import PartitionLog
from penstock.storage.log.file_names import KEYS

T = TypeVar("T")
# As clients write them: who it was, and numbers.
WRITTEN_VALUE = re.compile(rb"(producer|transactions|transformer|transactor|sink)-\d+/\d+/\d+")
READ_BYTES = 1 << 20
CREATION_NS = 20 * SECOND
LOOK_NS = 50 * MILLISECOND
# In a ring of three everybody reaches everybody.
RING_NEEDS = 3
DAMAGED_RUNS = 0.3
# Leaders that fall with records that nobody else has: the others' logs part from theirs.
STRANDED_RUNS = 0.9
SURVIVED_DAMAGES = (
    FaultKind.DAMAGE,
    FaultKind.DAMAGED_TAIL,
    FaultKind.MISSING_FILE,
    FaultKind.MISSING_DIRECTORY,
    FaultKind.DAMAGED_QUORUM,
    FaultKind.DAMAGED_JOURNAL,
    FaultKind.ROT,
    FaultKind.FAILED_READ,
    FaultKind.NEW_DISK,
)
UNSYNCED_LOSES = (
    FaultKind.POWER_CUT,
    FaultKind.POWER_CUT_ALL,
    FaultKind.POWER_CUT_IN_WRITE,
    FaultKind.FAILED_SYNC,
)
# What every run that is asked for queues has besides other faults.
QUEUE_FAULTS = (FaultKind.KILL, FaultKind.CLOCK_JUMP)
CLIENT_SKEW_MS = 500
DEAD_LETTERS = "penstock-dead-letters-"
# So many times as long as the faults, until enough is done.
RELENTING = 15


def unsettled(cluster: ClusterWorld) -> Iterator[str]:
    """Everything that keeps a cluster from being settled, though nothing is broken any more."""
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
        return None if _is_gone(cluster, place, partition) else "nobody leads"
    led = _backend(leader).partitions.find(*place)
    if led is None or led.leader_epoch != partition.leader_epoch or led.stopped is not None:
        return f"node {partition.leader} should lead, and does not"
    if partition.is_moving:
        return f"moves from {partition.removing} to {partition.adding}"
    if len(partition.isr) < len(partition.replicas):
        return f"in sync are {partition.isr} of {partition.replicas}"
    if led.log.last_stable_offset < led.high_watermark:
        return f"a transaction is open: stable to {led.log.last_stable_offset} of {led.high_watermark}"
    if led.high_watermark != led.log.end:
        return f"the high watermark is {led.high_watermark}, the log ends at {led.log.end}"
    return _unequal_logs(logs_of(cluster, place), len(partition.replicas), led.log.start)


def _is_gone(cluster: ClusterWorld, place: Place, partition: PartitionState) -> bool:
    """Whether its only replica in sync was on a disk that was replaced: then it is for an operator to decide.

    Topics that clients write to have more replicas in sync before anything is acknowledged.
    """
    is_used = place in cluster.used
    damages = (damage for found in cluster.world.damages.values() for damage in found)
    return not is_used and not partition.complete and any(damage.what == EVERYTHING for damage in damages)


def _unequal_logs(logs: dict[int, PartitionLog], replicas: int, start: int) -> str | None:
    ends = {node_id: log.end for node_id, log in logs.items()}
    if len(ends) < replicas or len(frozenset(ends.values())) > 1:
        return f"logs end at {ends}"
    if any(log.start < start for log in logs.values()):
        starts = {node_id: log.start for node_id, log in logs.items()}
        return f"logs start at {starts}"
    damaged = [node_id for node_id, log in logs.items() if log.corruption]
    if damaged:
        return f"known damage is not repaired on nodes {damaged}"
    unsure = [node_id for node_id, log in logs.items() if log.is_unsure and replicas > 1]
    if unsure:
        return f"producers are not rebuilt on nodes {unsure}"
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
    """Read everything there is, and compare it with what clients saw."""
    anomalies: list[str] = []
    finals: dict[Place, list[tuple[int, bytes]]] = {}
    for place, history in cluster.journal.logs.items():
        # What is missing in front of the log is not looked for: it has to be right that it starts there.
        cluster.probe.look(place)
        start = _start_of(cluster, place)
        final = finals[place] = read_to_the_end(cluster, place, values_of)
        anomalies += [f"{place[0]}/{place[1]} {anomaly}" for anomaly in check_log(history, final, start)]
    anomalies += _check_transactions(cluster)
    anomalies += _check_queues(cluster, finals)
    if not _settle(cluster):
        # What was read may have been found damaged, and is repaired.
        return [*anomalies, *_stuck(cluster, "after the last read")]
    for place in _all_places(cluster):
        anomalies += _compare_copies(cluster, place, finals.get(place))
    for node in cluster.nodes.values():
        node.shows_metadata()
        if node.protocol_errors and not cluster.options.access_users:
            # No client of ours breaks the protocol; a login that was revoked ends with the next request.
            anomalies.append(f"protocol error: {node.machine.name} closed {node.protocol_errors} connections")
    return anomalies


def _check_transactions(cluster: ClusterWorld) -> list[str]:
    """Compare what clients of transactions saw with the logs, and so every replica's index of aborts."""
    logs = {
        place: [entry for batch in read_to_the_end(cluster, place, _batches_of) for entry in _entries(batch)]
        for place in cluster.transfers
    }
    anomalies = cluster.journal.transactions.check(logs)
    anomalies += cluster.journal.batches.check(cluster.journal.transactions.found_committed)
    for place, entries in logs.items():
        expected = aborted_in(entries)
        for node_id, log in logs_of(cluster, place).items():
            if cluster.world.is_rotten(cluster.node(node_id).machine.name, log.directory):
                continue
            _rebuild_where_read(log)
            found = [(one.producer_id, one.first_offset) for one in log.aborted_between(log.start, log.end)]
            if sorted(found) != expected:
                anomalies.append(
                    f"aborted index: {place[0]}/{place[1]} on {node_id} has {sorted(found)}, not {expected}"
                )
    return anomalies


def _check_queues(cluster: ClusterWorld, finals: Mapping[Place, list[tuple[int, bytes]]]) -> list[str]:
    """Compare what consumers of queues saw with the topics, and with the dead letters."""
    if not cluster.jobs:
        return []
    logs: dict[str, dict[Place, list[tuple[int, bytes]]]] = {}
    letters: list[DeadLetterCopy] = []
    groups = _dead_letter_groups(cluster)
    for group, place in cluster.queues():
        records = (
            finals[place]
            if place in finals
            else [
                (offset, value)
                for batch in _committed(read_to_the_end(cluster, place, _batches_of))
                for offset, value in batch.values
            ]
        )
        logs.setdefault(group.name, {})[place] = records
    for place in dict.fromkeys(place for _, place in cluster.queues()):
        letters += _dead_letters(cluster, place, groups)
    redriven = [
        anomaly
        for index in range(cluster.options.partitions if cluster.options.queue_redrivers else 0)
        for anomaly in _check_redriven(cluster, index)
    ]
    now_ms = WORLD_BEGINS_MS + cluster.world.scheduler.now // MILLISECOND
    committed = cluster.journal.transactions.found_committed
    return [*cluster.journal.queues.check(logs, letters, committed, now_ms), *redriven]


def _check_redriven(cluster: ClusterWorld, index: int) -> list[str]:
    """Compare the dead letters of a partition with those that were moved."""
    image, dead = cluster.newest_image(), (dead_letter_topic(JOBS), index)
    moved = _committed(read_to_the_end(cluster, (REDRIVEN, index), _batches_of))
    values = [value for batch in moved for _, value in batch.values]
    letters: dict[int, bytes] = {}
    if image is not None and image.partition(*dead) is not None:
        for batch in _committed(read_to_the_end(cluster, dead, _batches_of)):
            letters.update(batch.values)
    queue = cluster.queue(REDRIVE_GROUP, dead) if letters else None
    end, left = (0, {}) if queue is None else (int(queue.end), queue.entries)
    finished = [offset for offset in letters if offset < end and offset not in left]
    return cluster.journal.queues.check_redriven(RedrivenPartition(dead, letters, finished, values))


def _committed(batches: Iterable[tuple[int, OpenBatch]]) -> Iterator[OpenBatch]:
    """Batches of transactions that are committed."""
    pending: dict[int, list[OpenBatch]] = {}
    for _, batch in batches:
        header, _, is_commit = batch
        if is_commit is None:
            pending.setdefault(header.producer_id, []).append(batch)
        else:
            ended = pending.pop(header.producer_id, [])
            yield from ended if is_commit else ()


def _dead_letter_groups(cluster: ClusterWorld) -> dict[int, str]:
    """Whose dead letters a producer moves."""
    led = cluster.leader_of((TRANSACTIONS_TOPIC, 0))
    groups: dict[int, str] = {}
    for node in cluster.nodes.values():
        for coordinator in _backend(node).transactions._coordinators:
            if coordinator.partition is led:
                for transactional_id, known in coordinator.machine.image.transactions.items():
                    if transactional_id.startswith(DEAD_LETTERS):
                        groups[known.producer_id] = transactional_id.rsplit("-", 1)[1]
    return groups


def _dead_letters(cluster: ClusterWorld, place: Place, groups: Mapping[int, str]) -> Iterator[DeadLetterCopy]:
    """The committed dead letters of a partition, as long as nobody has changed the number of partitions."""
    image, dead = cluster.newest_image(), (dead_letter_topic(place[0]), place[1])
    if image is None or image.partition(*dead) is None:
        return
    headers: dict[int, dict[str, bytes | None]] = {}

    def parse(content: bytes) -> list[tuple[int, OpenBatch]]:
        for record in read_all_records(content):
            headers[record.offset] = dict(record.headers)
        return _batches_of(content)

    for batch in _committed(read_to_the_end(cluster, dead, parse)):
        for offset, value in batch.values:
            origin = headers[offset]
            yield DeadLetterCopy(
                groups[batch.header.producer_id],
                place,
                int(origin[ORIGIN_OFFSET] or b"-1"),
                value,
                int(origin[ATTEMPTS] or b"-1"),
            )


def _batches_of(content: bytes) -> list[tuple[int, OpenBatch]]:
    return [(batch.header.base_offset, batch) for batch in batches_of(content)]


def _entries(found: tuple[int, OpenBatch]) -> Iterator[LogEntry]:
    header, values, is_commit = found[1]
    if is_commit is not None:
        yield LoggedMarker(header.base_offset, header.producer_id, header.producer_epoch, is_commit)
    for offset, value in values:
        yield LoggedRecord(offset, value, header.producer_id, header.producer_epoch)


def _compare_copies(cluster: ClusterWorld, place: Place, final: list[tuple[int, bytes]] | None) -> list[str]:
    """Compare the replicas of a partition, and what was read from it, if clients use it."""
    image = cluster.newest_image()
    partition = None if image is None else image.partition(*place)
    assert partition is not None
    if partition.leader not in cluster.nodes:
        return []  # it is gone
    led = _backend(cluster.nodes[partition.leader]).partitions.find(*place)
    assert led is not None
    copies = {node: _copy(cluster, node, log) for node, log in logs_of(cluster, place).items()}
    if cluster.options.compacted and final is not None:
        return list(_check_compacted(cluster, place, final, copies))
    is_cleaned = cluster.options.compacted or "partition.compacted" in cluster.journal.coverage.counts
    if place[0] in INTERNAL_TOPICS and is_cleaned:
        # Each node compacts them by itself, in a run that takes long enough.
        return []
    return check_replicas(f"{place[0]}/{place[1]}", copies, led.high_watermark)


def _check_compacted(
    cluster: ClusterWorld,
    place: Place,
    final: list[tuple[int, bytes]],
    copies: Mapping[int, ReplicaCopy],
) -> Iterator[str]:
    history = cluster.journal.log(*place)
    for node_id, copy in copies.items():
        if not copy.damaged:
            records = [record for batch in copy.batches for record in values_of(batch.content)]
            for anomaly in check_compacted_copy(history, final, records):
                yield f"{place[0]}/{place[1]} on {node_id} {anomaly}"


def _rebuild_where_read(log: PartitionLog) -> None:
    """An index that is missing is rebuilt here, and not by a thread that asks to read again later."""
    log.configure(replace(log._state.options, rebuild_bytes_max=READ_BYTES))


def _copy(cluster: ClusterWorld, node_id: int, log: PartitionLog) -> ReplicaCopy:
    excused = cluster.world.is_rotten(cluster.node(node_id).machine.name, log.directory)
    if excused:
        # What no reader has asked for since may not have been found yet. What was repaired is whole.
        for _ in log.scrub():
            pass
    _rebuild_where_read(log)
    found = read_back(log)
    return ReplicaCopy(found.start, found.end, found.batches, found.damaged if excused else ())


def read_to_the_end(
    cluster: ClusterWorld, place: Place, parse: Callable[[bytes], list[tuple[int, T]]]
) -> list[tuple[int, T]]:
    """Everything in a partition that its leader gives to consumers, with its offset.

    What nobody has read since the start is verified first. What is damaged then is repaired, perhaps
    under another leader: that takes a while.
    """
    final: list[tuple[int, T]] = []
    at: Offset | None = None
    give_up_at = cluster.world.scheduler.now + cluster.options.healing_ns
    while cluster.world.scheduler.now < give_up_at:
        led = _leader_of(cluster, place)
        if led is not None and at is not None and at >= led[1].high_watermark:
            break
        more = () if led is None else _read_on(cluster, *led, at, parse)
        if more is None:
            break
        records, end = more or ([], at)
        if end == at:
            cluster.world.run(LOOK_NS)
        final += records
        at = end
    return final


def _leader_of(cluster: ClusterWorld, place: Place) -> tuple[Backend, LeaderPartition] | None:
    image = cluster.newest_image()
    partition = None if image is None else image.partition(*place)
    node = None if partition is None else cluster.nodes.get(partition.leader)
    backend = None if node is None else node.backend
    led = None if backend is None else backend.partitions.find(*place)
    return None if backend is None or led is None or not led.is_established else (backend, led)


def _read_on(
    cluster: ClusterWorld,
    backend: Backend,
    led: LeaderPartition,
    at: Offset | None,
    parse: Callable[[bytes], list[tuple[int, T]]],
) -> tuple[list[tuple[int, T]], Offset] | tuple[()] | None:
    """The next records, and where they end; () if they cannot be read yet, None if there are no more."""
    start = led.log.start if at is None else at
    if start >= led.high_watermark:
        return None
    found: list[FetchedPartition] = []
    limits = FetchLimits(min_bytes=1, max_bytes=READ_BYTES, max_wait_ms=0)
    backend.fetch_service.fetch([FetchPartition(led, start, READ_BYTES)], limits, found.extend)
    cluster.world.run(LOOK_NS, lambda: bool(found))
    records = found[0].records if found else None
    if records is None:
        return ()
    try:
        content = records.to_bytes()
        return [pair for pair in parse(content) if pair[0] >= start], Offset(max(start, end_of(content)))
    except CorruptionError:
        return ()  # a consumer asks again


def _start_of(cluster: ClusterWorld, place: Place) -> int:
    """Where the log of a partition starts."""
    led = _leader_of(cluster, place)
    return 0 if led is None else int(led[1].log.start)


def _backend(node: ClusterNode) -> Backend:
    assert node.backend is not None
    return node.backend


def is_replicated(path: str) -> bool:
    """Whether other nodes have what is in a file: that of a partition that clients use, or of the quorum."""
    used = (TOPIC, TRANSFERS, JOBS, PRIVATE, OFFSETS_TOPIC, TRANSACTIONS_TOPIC, QUEUES_TOPIC)
    # A replica's keys are its own: without them its log is gone, as without its directory.
    is_key_table = path.endswith(f"/{KEYS}")
    return not is_key_table and path.startswith((*(f"logs/{topic}/" for topic in used), "meta/raft/"))


def in_clear(cluster: ClusterWorld) -> Iterator[tuple[str, bytes]]:
    """The files of all disks in which a value stands that a client has written, and one such value."""
    for node in cluster.world.nodes.values():
        for path in node.disk.files():
            found = WRITTEN_VALUE.search(node.disk.read(path))
            if found is not None:
                yield f"{node.name}: {path}", found[0]


def draw_plan(luck: random.Random, nodes: int) -> FaultPlan:
    """A plan for whole nodes with clients: shorter than for single services, and aimed."""
    kinds = list(ANYWHERE if nodes == 1 else (*ANYWHERE, FaultKind.ROLLING_RESTART))
    if nodes <= RING_NEEDS:
        kinds.remove(FaultKind.RING)
    drawn = tuple(luck.sample(kinds, luck.randint(1, 5)))
    if nodes > 1 and luck.random() < STRANDED_RUNS:
        # Twice as likely as others: most runs have only a few faults.
        drawn = (*drawn, FaultKind.STRANDED_LEADER, FaultKind.STRANDED_LEADER)
    if nodes > 1 and luck.random() < DAMAGED_RUNS:
        drawn = (*drawn, *luck.sample(SURVIVED_DAMAGES, luck.randint(1, 2)))
    weather = draw_weather(luck)
    every_ns = luck.choice((150, 400, 1_000)) * MILLISECOND
    lasting_ns = luck.choice((100, 400, 1_500)) * MILLISECOND
    aims = luck.choice(
        (
            (FaultTarget.ANYBODY,),
            (FaultTarget.ANYBODY, FaultTarget.LEADER),
            (FaultTarget.LEADER, FaultTarget.CONTROLLER),
        )
    )
    return FaultPlan(drawn, every_ns, lasting_ns, weather, aims, patient=luck.random() < 0.5)


def without_power_cuts(plan: FaultPlan) -> FaultPlan:
    """The same plan for nodes that do not sync: only processes end, and no disk loses anything."""
    kinds = tuple(kind for kind in plan.kinds if kind not in (*DAMAGES, *UNSYNCED_LOSES))
    return replace(plan, kinds=kinds or (FaultKind.KILL, FaultKind.KILL_ALL))


def options_for(
    seed: int,
    nodes: int | None = None,
    *,
    queues: bool = False,
    security: bool = False,
    encrypted: bool = False,
) -> SimulatedClusterOptions:
    """The workload that is drawn from a seed, on as many nodes as asked for.

    With `queues` every seed has them, and kills and clocks that jump besides its other faults; with
    `security` its nodes are secured, and there are users whose rights change. With `encrypted`, all
    else is drawn as without.
    """
    world = World(seed)
    drawn = SimulatedClusterOptions.draw(world.random("options"))
    drawn = drawn.with_consumer_group(world.random("consumer group"))
    drawn = drawn.with_sinks(world.random("sinks"))
    drawn = drawn.with_queues(world.random("queue clients"), always=queues)
    if security:
        drawn = drawn.with_access(world.random("access"))
    if nodes is not None:
        drawn = replace(drawn, nodes=nodes)
    if queues:
        plan = draw_plan(world.random("plan"), drawn.nodes)
        plan = replace(plan, kinds=(*plan.kinds, *QUEUE_FAULTS))
        drawn = replace(drawn, plan=plan, client_skew_ms=CLIENT_SKEW_MS).with_more_of_queues(
            world.random("more of queues")
        )
    return replace(drawn, encrypted=encrypted)


def run_cluster(
    seed: int, options: SimulatedClusterOptions | None = None, make: MakeProcess = SimulatedBroker
) -> RunResult:
    """Run one cluster to its end and check it. The same arguments give the same result."""
    options = options or options_for(seed)
    cluster = ClusterWorld(seed, options, make)
    world = cluster.world
    plan = options.plan or draw_plan(world.random("plan"), options.nodes)
    if options.fsync is not FsyncMode.EVERY:
        plan = without_power_cuts(plan)
    damage = FileCorruptor(world.random("damage"), list(world.nodes.values()), is_replicated)
    world.flips[damage.victim.name] = damage.flips
    nemesis = Nemesis(world, plan, cluster.find, cluster.works, damage)
    with cluster.journal.coverage.events_counted():
        unfinished = _live(cluster, nemesis)
    for node in cluster.nodes.values():
        for log in node.logs():
            cluster.journal.coverage.add_log(log)
        for scrubbed in node.scrubs():
            cluster.journal.coverage.add_scrub(scrubbed)
    anomalies = [*world.failures, *cluster.journal.anomalies(), *unfinished]
    if options.encrypted:
        anomalies += [f"in clear: {path} has {value!r}" for path, value in in_clear(cluster)]
    return RunResult(
        seed=seed,
        anomalies=tuple(anomalies),
        operations=cluster.journal.operations,
        acknowledged=cluster.journal.acknowledged,
        events=world.scheduler.events,
        virtual_ms=world.scheduler.now // MILLISECOND,
        faults=dict(sorted(nemesis.counts.items())),
        visited=cluster.journal.visited(),
        trace=world.trace.digest(),
    )


def _live(cluster: ClusterWorld, nemesis: Nemesis) -> list[str]:
    world, options = cluster.world, cluster.options
    world.start_all()
    cluster.creator.start()
    if not _wait(cluster, CREATION_NS, lambda: cluster.creator.finished):
        return [] if cluster.has_failed else ["stuck: there is no topic to work with"]
    cluster.start_clients()
    if not _suffer(cluster, nemesis):
        return [f"vacuous: {little} under faults" for little in cluster.too_little()]
    if not _wait(cluster, options.healing_ns, cluster.works_again):
        return _stuck(cluster, "after the last fault")
    cluster.finish_clients()
    if not _wait(cluster, options.healing_ns, cluster.clients_are_done):
        return _stuck(cluster, "after the last fault")
    cluster.stop_clients()
    if not _settle(cluster):
        return _stuck(cluster, "after the last request")
    if options.encrypted and not _wait(cluster, options.healing_ns, cluster.has_dropped_old_keys):
        return [] if cluster.has_failed else ["stuck: a node has not done with its old master keys"]
    _end_all(cluster)
    if not _settle(cluster):
        return _stuck(cluster, "after the last power cut")
    return judge(cluster)


def _end_all(cluster: ClusterWorld) -> None:
    """Whatever is in memory only, the last power cut takes; without syncs, the last kill."""
    for node in cluster.world.nodes.values():
        if cluster.options.fsync is FsyncMode.EVERY:
            node.cut_power()
        elif node.is_up:
            node.kill()


def _suffer(cluster: ClusterWorld, nemesis: Nemesis) -> bool:
    """Let the faults happen; returns whether enough was done meanwhile, or something went wrong."""
    faulty_ns = cluster.options.faulty_ns
    nemesis.begin()
    _wait(cluster, faulty_ns, lambda: False)
    if not cluster.has_done_enough():
        # The faults go on, but each waits until the cluster works again.
        cluster.waits_for_groups = True
        nemesis.relent()
        _wait(cluster, RELENTING * faulty_ns, cluster.has_done_enough)
    nemesis.end()
    return cluster.has_done_enough() or cluster.has_failed


def _wait(cluster: ClusterWorld, duration_ns: int, enough: Callable[[], bool]) -> bool:
    """Let time pass until `enough`, or until something is wrong for good."""
    end = cluster.world.scheduler.now + duration_ns
    while not enough():
        left = end - cluster.world.scheduler.now
        if left <= 0 or cluster.has_failed:
            return False
        cluster.world.run(min(LOOK_NS, left))
        cluster.restart_where_disks_failed()
    return not cluster.has_failed


def _settle(cluster: ClusterWorld) -> bool:
    """Wait for the cluster to settle; nodes that ended of a fault are started again."""

    def settled() -> bool:
        cluster.world.start_all()
        return next(unsettled(cluster), None) is None

    return _wait(cluster, cluster.options.healing_ns, settled)


def _stuck(cluster: ClusterWorld, when: str) -> list[str]:
    if cluster.has_failed:
        return []
    trouble = next(cluster.waiting_clients(), None) or next(unsettled(cluster), "nothing seems wrong")
    return [f"stuck: {trouble}, {cluster.options.healing_ns // SECOND} s {when}"]
