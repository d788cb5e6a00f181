"""The whole way: a log on real files, group commit, and the helper process that syncs."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest
import uvloop

from penstock.core.model import LeaderEpoch, StorageError, Timestamp, TopicId
from penstock.core.records import Record, check_batches, write_batch
from penstock.runtime.sync_helper import SyncHelper
from penstock.storage.commit import GroupCommit
from penstock.storage.disk import PosixDisk
from penstock.storage.log import LogOptions, PartitionLog

TOPIC = TopicId(UUID(int=1))
OPTIONS = LogOptions(segment_bytes=20_000)
PATIENCE_S = 60


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = uvloop.new_event_loop()
    yield loop
    loop.close()


def append(log: PartitionLog, number: int) -> None:
    batch = write_batch([Record(0, number, None, b"%d " % number * 200, ())])
    log.append(batch, check_batches(batch), LeaderEpoch(number // 40), Timestamp(number))


def test_a_log_rolls_checkpoints_and_becomes_durable_through_the_helper(
    loop: asyncio.AbstractEventLoop, tmp_path: Path
) -> None:
    disk, helper = PosixDisk(str(tmp_path)), SyncHelper.start(loop)
    commit = GroupCommit(helper)
    log = PartitionLog.create(disk, "logs/orders/0", TOPIC, OPTIONS, commit=commit)
    answers: list[StorageError | None] = []

    async def work() -> None:
        everything = asyncio.Event()

        def done(error: StorageError | None) -> None:
            answers.append(error)
            if len(answers) == 201:
                everything.set()

        for number in range(200):
            append(log, number)
            log.sync(done)
            if number == 100:
                log.checkpoint(done)  # takes several rounds after this one
            if number % 20 == 0:
                # Let rounds come and go while the log rolls on.
                await asyncio.sleep(0)
        await asyncio.wait_for(everything.wait(), PATIENCE_S)

    loop.run_until_complete(work())

    assert set(answers) == {None}
    assert log.stopped is None
    assert log.synced == log.end == 200
    assert len(log.segments()) > 5
    assert commit.counters.rounds < commit.counters.requests
    helper.close()

    reopened, report = PartitionLog.open(disk, "logs/orders/0", TOPIC, OPTIONS)
    assert reopened.end == 200
    assert report.recovery_point == 101
    reopened.close()


def test_a_log_whose_helper_died_stops_and_never_says_durable_again(
    loop: asyncio.AbstractEventLoop, tmp_path: Path
) -> None:
    helper = SyncHelper.start(loop)
    log = PartitionLog.create(
        PosixDisk(str(tmp_path)), "logs/orders/0", TOPIC, OPTIONS, commit=GroupCommit(helper)
    )
    answers: list[StorageError | None] = []

    async def work() -> None:
        answered = asyncio.Event()

        def done(error: StorageError | None) -> None:
            answers.append(error)
            answered.set()

        append(log, 0)
        helper._process.kill()
        helper._process.wait()
        log.sync(done)
        await asyncio.wait_for(answered.wait(), PATIENCE_S)

    loop.run_until_complete(work())

    assert isinstance(answers[0], StorageError)
    assert log.stopped is not None
    assert log.synced == 0
    helper.close()
