"""DescribeLogDirs: how much space replicas take, and where."""

import os
from collections.abc import Iterable, Mapping

from penstock.broker.partitions import QuarantineSize, Replica
from penstock.core.protocol import ErrorCode
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
from penstock.server.kafka.response_rows import CLUSTER
from penstock.server.kafka.router import routes

SPACE_SINCE = 4
UNKNOWN_SPACE = (-1, -1)
NO_SCRUB, NO_DAMAGE = DescribeLogDirsResponseScrub(), DescribeLogDirsResponseDamage()


@routes.handles(DescribeLogDirsRequest)
def describe_log_dirs(request: DescribeLogDirsRequest, call: Request) -> None:
    if not call.authorize(AclOperation.DESCRIBE, CLUSTER):
        call.reply(
            DescribeLogDirsResponse(
                throttle_time_ms=call.charge_time(),
                error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
                results=(),
            )
        )
        return
    replicas = list(_wanted(request, call))
    if not request.with_scrub:
        _answer(call, replicas, None)
        return

    def measured(quarantines: dict[str, QuarantineSize]) -> None:
        _answer(call, replicas, quarantines)

    call.backend.partitions.measure_quarantines(replicas, measured)


def _answer(
    call: Request, replicas: Iterable[Replica], quarantines: Mapping[str, QuarantineSize] | None
) -> None:
    data_dir = call.backend.node.data_dir
    total_bytes, usable_bytes = _space(data_dir) if call.version >= SPACE_SINCE else UNKNOWN_SPACE
    directory = DescribeLogDirsResponseDirectory(
        error_code=ErrorCode.NONE,
        log_dir=data_dir,
        topics=_topics(replicas, call, quarantines),
        total_bytes=total_bytes,
        usable_bytes=usable_bytes,
        scrub=NO_SCRUB if quarantines is None else _scrub(call),
    )
    call.reply(DescribeLogDirsResponse(throttle_time_ms=call.charge_time(), results=(directory,)))


def _wanted(request: DescribeLogDirsRequest, call: Request) -> Iterable[Replica]:
    partitions = call.backend.partitions
    if request.topics is None:
        return sorted(partitions, key=lambda replica: replica.name)
    named = sorted({(topic.topic, index) for topic in request.topics for index in topic.partitions})
    return (found for found in (partitions.find_log(*name) for name in named) if found is not None)


def _topics(
    replicas: Iterable[Replica], call: Request, quarantines: Mapping[str, QuarantineSize] | None
) -> tuple[DescribeLogDirsResponseTopic, ...]:
    by_topic: dict[str, list[DescribeLogDirsResponsePartition]] = {}
    for replica in replicas:
        topic, index = replica.name
        by_topic.setdefault(topic, []).append(
            DescribeLogDirsResponsePartition(
                partition_index=index,
                partition_size=replica.log.size_bytes,
                offset_lag=0,
                is_future_key=False,
                damage=NO_DAMAGE if quarantines is None else _damage(replica, call, quarantines),
            )
        )
    return tuple(
        DescribeLogDirsResponseTopic(name=name, partitions=tuple(rows)) for name, rows in by_topic.items()
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
