"""Logs that are opened while their key table is under another master key than the current one."""

from uuid import UUID

import pytest

from penstock.broker.partitions.log_manager import LogManager, LogStore
from penstock.core.model import PartitionIndex, TopicId, TopicName, TopicPartition
from penstock.storage.commit import GroupCommit
from penstock.storage.disk import CrashableDisk
from penstock.storage.log import LogOptions, PartitionLog
from tests.support.key_vaults import vault_of
from tests.support.manual_runtime import HandSyncs, HandTimers, hand_runtime

TOPIC = TopicId(UUID(int=7))
NAME = TopicPartition(TopicName("orders"), PartitionIndex(0))
OPTIONS = LogOptions(is_encrypted=True)


@pytest.mark.parametrize(("names", "is_told"), [(("old",), False), (("old", "new"), True)])
def test_whoever_looks_after_the_keys_hears_of_a_log_that_is_under_an_old_one(
    names: tuple[str, ...], is_told: bool
) -> None:
    disk, timers, syncs = CrashableDisk(), HandTimers(), HandSyncs()
    disk.make_directory("")
    PartitionLog.create(
        disk, "logs/orders/0", TOPIC, OPTIONS, vault=vault_of("old").of(TOPIC, NAME.partition)
    ).close()
    vault, told = vault_of(*names), list[bool]()
    vault.on_old_table = lambda: told.append(True)
    commit = GroupCommit(syncs, timers.now, timers.when_idle)
    logs = LogManager(hand_runtime(timers, syncs), LogStore(disk, disk, commit, vault=vault))

    log, _ = logs.open(NAME, TOPIC, OPTIONS)

    assert bool(told) is is_told
    log.close()
