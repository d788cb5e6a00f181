"""DescribeLogDirs: how much space replicas take, and where."""

import os
from collections.abc import Iterator, Mapping, Sequence

from penstock.broker.partitions import QuarantineSize, Replica
from penstock.core.model import TopicPartition
from penstock.core.protocol import ErrorCode, Steps
from penstock.core.protocol.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResponseDamage,
    DescribeLogDirsResponseDirectory,
    DescribeLogDirsResponsePartition,
    DescribeLogDirsResponseRange,
    DescribeLogDirsResponseScrub,
    DescribeLogDirsResponseTopic,
)
from penstock.security import AclOperation
from penstock.server.kafka.request import Request
from penstock.server.kafka.response_rows import CLUSTER, by_topic_in_steps, collected, unique
from penstock.server.kafka.router import routes

SPACE_SINCE = 4
UNKNOWN_SPACE = (-1, -1)
NO_SCRUB, NO_DAMAGE = DescribeLogDirsResponseScrub(), DescribeLogDirsResponseDamage()


@routes.handles(DescribeLogDirsRequest)
def describe_log_dirs(request: DescribeLogDirsRequest, call: Request) -> Iterator[None]:
    if not call.authorize(AclOperation.DESCRIBE, CLUSTER):
        call.reply(
            DescribeLogDirsResponse(
                throttle_time_ms=call.charge_time(),
                error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
                results=(),
            )
        )
        return
    replicas = yield from _wanted(request, call)
    if not request.with_scrub:
        yield from _answer(call, replicas, None)
        return

    def measured(quarantines: dict[str, QuarantineSize]) -> None:
        call.run(_answer(call, replicas, quarantines))

    call.backend.partitions.measure_quarantines(replicas, measured)


def _answer(
    call: Request, replicas: Sequence[Replica], quarantines: Mapping[str, QuarantineSize] | None
) -> Iterator[None]:
    data_dir = call.backend.node.data_dir
    found = yield from by_topic_in_steps(
        (replica.name.topic, _row(call, replica, quarantines)) for replica in replicas
    )
    topics = yield from collected(
        DescribeLogDirsResponseTopic(name=name, partitions=rows) for name, rows in found
    )
    total_bytes, usable_bytes = _space(data_dir) if call.version >= SPACE_SINCE else UNKNOWN_SPACE
    directory = DescribeLogDirsResponseDirectory(
        error_code=ErrorCode.NONE,
        log_dir=data_dir,
        topics=topics,
        total_bytes=total_bytes,
        usable_bytes=usable_bytes,
        scrub=NO_SCRUB if quarantines is None else _scrub(call),
    )
    call.reply(DescribeLogDirsResponse(throttle_time_ms=call.charge_time(), results=(directory,)))


def _wanted(request: DescribeLogDirsRequest, call: Request) -> Steps[list[Replica]]:
    """The replicas of this node that are asked for, by name."""
    partitions = call.backend.partitions
    replicas: list[Replica] = []
    if request.topics is None:
        replicas += partitions
    else:
        named = yield from unique(
            (topic.topic, index) for topic in request.topics for index in topic.partitions
        )
        for name in named:
            found = partitions.find_log(*name)
            if found is not None:
                replicas.append(found)
            yield
    replicas.sort(key=_name_of)
    return replicas


def _name_of(replica: Replica) -> TopicPartition:
    return replica.name


def _row(
    call: Request, replica: Replica, quarantines: Mapping[str, QuarantineSize] | None
) -> DescribeLogDirsResponsePartition:
    return DescribeLogDirsResponsePartition(
        partition_index=replica.name.partition,
        partition_size=replica.log.size_bytes,
        offset_lag=0,
        is_future_key=False,
        damage=NO_DAMAGE if quarantines is None else _damage(replica, call, quarantines),
    )


def _damage(
    replica: Replica, call: Request, quarantines: Mapping[str, QuarantineSize]
) -> DescribeLogDirsResponseDamage:
    log = replica.log
    kept = quarantines.get(log.directory, QuarantineSize(0, 0))
    return DescribeLogDirsResponseDamage(
        verified_at_ms=call.backend.partitions.scrubber.verified_at(replica),
        damaged=tuple(DescribeLogDirsResponseRange(start=one.start, end=one.end) for one in log.corruption),
        found=log.stats.damaged_ranges,
        repaired=log.stats.repaired_ranges,
        lost=log.stats.lost_ranges,
        quarantine_files=kept.files,
        quarantine_bytes=kept.size_bytes,
    )


def _scrub(call: Request) -> DescribeLogDirsResponseScrub:
    at = call.backend.partitions.scrubber.progress
    topic, partition = ("", -1) if at.log is None else at.log
    return DescribeLogDirsResponseScrub(
        started_ms=at.started, is_done=at.is_done, topic=topic, partition=partition, segment=at.segment
    )


def _space(data_dir: str) -> tuple[int, int]:
    """How large the file system of a directory is, and what is left of it."""
    try:
        facts = os.statvfs(data_dir)
    except OSError:
        return UNKNOWN_SPACE
    return facts.f_blocks * facts.f_frsize, facts.f_bavail * facts.f_frsize
