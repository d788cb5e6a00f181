"""Master keys of a running node: what is written again, what a power cut leaves, and which key is needed."""

from collections.abc import Callable
from contextlib import suppress
from random import Random  # noqa: TID251  seeded

import pytest

from penstock.broker.cluster.raft_storage import read_snapshot
from penstock.broker.encryption.key_rotation import LOGS_AT_ONCE, Rotated, RotationPhase
from penstock.broker.encryption.keys_in_use import keys_in_use
from penstock.broker.encryption.segment_reseal import read_position
from penstock.broker.partitions.log_manager import LogManager, LogStore
from penstock.core.model import ApiError, ErrorKind, StorageError
from penstock.storage.disk import CrashableDisk, PowerCut
from penstock.storage.disk.memory import CrashableFile
from penstock.storage.sealing import KeyUnavailable, MasterKeys
from tests.support.key_vaults import FixedKeys
from tests.support.recorded_events import recorded_events
from tests.unit.broker.encryption.encrypted_node import (
    SECRET_WORD,
    SNAPSHOT,
    EncryptedNode,
    blank_disk,
    plain,
)


def node_with_records(service: FixedKeys | None = None, interval_ms: int = 0) -> EncryptedNode:
    return EncryptedNode(blank_disk(), service or FixedKeys("old"), interval_ms=interval_ms).fill()


class InterruptedKeys(FixedKeys):
    """A key service that is slow: something else happens between what it reads and its reply."""

    interrupt: Callable[[], None] | None = None

    def load(self) -> MasterKeys:
        keys = super().load()
        if self.interrupt is not None:
            interrupt, self.interrupt = self.interrupt, None
            interrupt()
        return keys


class FailingKeys(FixedKeys):
    """A key service that has no answer to a rotation."""

    def rotate(self, now_ms: int) -> MasterKeys:
        raise KeyUnavailable("the keyring cannot be written: no space left")


class UnwillingKeys(InterruptedKeys, FailingKeys):
    """A key service that is slow, and has no key to give."""


class ChangedKeys(FixedKeys):
    """A key service in which somebody puts another key in the place of each one, under the same name."""

    is_changed = False
    made = 0

    def load(self) -> MasterKeys:
        keys = super().load()
        return keys._replace(secrets=dict.fromkeys(self.names, b"B" * 32)) if self.is_changed else keys

    def rotate(self, now_ms: int) -> MasterKeys:
        self.made += 1
        return super().rotate(now_ms)


class SameKeys(FixedKeys):
    """A key service whose keys are made elsewhere; counts how often it was asked."""

    asked = 0

    def rotate(self, now_ms: int) -> MasterKeys:
        self.asked += 1
        return self.load()


def test_everything_is_under_the_new_key_and_the_old_one_is_not_needed() -> None:
    node = node_with_records()
    before = node.contents()

    with recorded_events() as events:
        reply = node.rotate()

    assert isinstance(reply, Rotated)
    assert reply.is_new
    new = reply.current
    assert set(keys_in_use(node.disk, node.directory)) == {new}
    assert [said["keys"] for said in events.named("encryption.keys_not_needed")] == [["old"]]
    assert node.rotation.status.phase is RotationPhase.IDLE
    assert [use.name for use in node.rotation.status.keys] == [new]
    node.close()

    node.service.names = (new,)
    again = EncryptedNode(node.disk, node.service)
    assert again.contents() == before
    assert read_snapshot(again.disk, SNAPSHOT, again.seal)


def test_a_node_that_has_not_looked_at_its_disk_yet_does_not_say_that_it_has_nothing_to_do() -> None:
    node = node_with_records()
    node.close()
    node.service.names = ("old", "new")

    again = EncryptedNode(node.disk, node.service)
    phases = [again.rotation.status.phase]
    again.rotation.start()
    phases.append(again.rotation.status.phase)
    again.finish()

    assert phases == [RotationPhase.REWRAPPING] * 2
    assert [use.name for use in again.rotation.status.keys] == ["new"]
    again.close()


def test_another_current_key_that_is_read_for_another_reason_is_a_rotation() -> None:
    node = node_with_records()
    node.rotation.start()
    node.finish()
    before = node.contents()
    node.service.names = ("old", "another node's")

    with recorded_events() as events:
        # As when a log needs a key that is missing.
        node.vault.adopt(node.service.load())
        node.finish()

    assert set(keys_in_use(node.disk, node.directory)) == {"another node's"}
    assert [said["key"] for said in events.named("encryption.key_rotated")] == ["another node's"]
    assert [said["keys"] for said in events.named("encryption.keys_not_needed")] == [["old"]]
    assert node.rotation.metrics.rotations.count == 1
    assert node.contents() == before
    # Whoever asks for a rotation after that gets another key.
    reply = node.rotate()
    assert isinstance(reply, Rotated)
    assert reply.is_new
    assert set(keys_in_use(node.disk, node.directory)) == {reply.current}
    node.close()


def test_a_log_that_turns_out_to_be_under_an_old_key_is_written_again() -> None:
    node = node_with_records()
    node.rotation.start()
    node.finish()
    # As one that was offline, or was being made while the key changed.
    late = node.logs.pop()
    reply = node.rotate()
    assert isinstance(reply, Rotated)
    assert set(keys_in_use(node.disk, node.directory)) == {"old", reply.current}

    node.vault.on_old_table()
    node.logs.append(late)
    node.vault.on_old_table()
    node.finish()

    assert set(keys_in_use(node.disk, node.directory)) == {reply.current}
    assert [use.name for use in node.rotation.status.keys] == [reply.current]
    node.close()


def test_another_current_key_that_is_read_while_a_rotation_is_asked_for_is_its_outcome() -> None:
    node = node_with_records()
    node.rotation.start()
    node.finish()
    replies: list[Rotated | ApiError] = []

    node.rotation.rotate(replies.append)
    node.service.names = ("old", "new")
    node.vault.adopt(node.service.load())
    node.finish()

    (reply,) = replies
    assert isinstance(reply, Rotated)
    assert reply.is_new
    assert set(keys_in_use(node.disk, node.directory)) == {reply.current}
    node.close()


def test_what_is_written_after_a_rotation_is_under_data_keys_that_the_old_disk_does_not_have() -> None:
    node = node_with_records()
    former = node.keys_on_disk()

    node.rotate()
    for one in node.logs:
        node.put(one.log)

    for one, old in zip(node.logs, former, strict=True):
        assert one.log.keys is not None
        table = one.log.keys.table
        assert table.id_at(one.log.end - 1) not in old
        assert table.spare not in old
        # What was there is under the key that it had.
        assert table.id_at(0) in old


def test_a_reseal_leaves_nothing_under_a_data_key_of_before() -> None:
    node = node_with_records()
    before, former = node.contents(), node.keys_on_disk()

    with recorded_events() as events:
        node.rotate(reseal=True)

    assert node.contents() == before
    for old, now in zip(former, node.keys_on_disk(), strict=True):
        assert not old & now
    (said,) = events.named("encryption.reseal_completed")
    assert said["left_out"] == []
    assert said["bytes"] == node.rotation.metrics.resealed_bytes.count > 1_000
    position = read_position(node.disk)
    assert position is not None
    assert position.is_done
    node.close()
    assert EncryptedNode(node.disk, node.service).contents() == before


def test_a_reseal_encrypts_what_a_log_has_in_clear_from_before() -> None:
    disk, service = blank_disk(), FixedKeys("old")
    EncryptedNode(disk, service, options=plain()).fill().close()
    node = EncryptedNode(disk, service)
    before = node.contents()
    assert SECRET_WORD in node.bytes_on_disk()

    node.rotate(reseal=True)

    assert node.contents() == before
    assert SECRET_WORD not in node.bytes_on_disk()


def test_records_are_appended_and_read_while_segments_are_written_again() -> None:
    node = node_with_records()
    replies: list[Rotated | ApiError] = []

    node.rotation.rotate(replies.append, reseal=True)
    for _ in range(60):
        node.timers.pass_ms(100)
        node.settle()
        for one in node.logs:
            node.put(one.log)
        assert all(node.contents())
    node.finish()

    assert node.rotation.status.phase is RotationPhase.IDLE
    assert [int(one.log.end) for one in node.logs] == [70, 70]
    before = node.contents()
    node.close()
    assert EncryptedNode(node.disk, node.service).contents() == before


@pytest.mark.parametrize("reseal", [False, True])
def test_a_rotation_is_finished_by_the_next_start_wherever_the_power_is_cut(*, reseal: bool) -> None:
    whole = node_with_records()
    before, former = whole.contents(), whole.keys_on_disk()
    whole.close()
    disk = whole.disk

    def rotated(disk: CrashableDisk, service: FixedKeys) -> list[Rotated | ApiError]:
        node = EncryptedNode(disk, service)
        replies: list[Rotated | ApiError] = []
        with suppress(PowerCut):
            node.rotation.rotate(replies.append, reseal=reseal)
            node.go_on(20)
        return replies

    probe = disk.copy()
    start = probe.operations
    assert rotated(probe, FixedKeys("old"))
    count = probe.operations - start
    assert count > 30
    for operation in range(1, count, 1 + count // 40):
        service = FixedKeys("old")
        victim = disk.copy()
        victim.cut_power_at(operation)
        replies: list[Rotated | ApiError] = []
        with suppress(PowerCut, StorageError):
            replies = rotated(victim, service)
        again = EncryptedNode(victim.crash(Random(operation)), service)

        assert again.contents() == before
        again.rotation.start()
        again.finish()

        assert again.contents() == before
        current = service.load().current
        assert set(keys_in_use(again.disk, again.directory)) == {current}
        if reseal and any(isinstance(reply, Rotated) for reply in replies):
            # It was promised.
            for old, now in zip(former, again.keys_on_disk(), strict=True):
                assert not old & now
        again.close()
        service.names = (current,)
        assert EncryptedNode(again.disk, service).contents() == before


def test_a_key_service_that_has_no_key_to_give_changes_nothing() -> None:
    node = node_with_records(FailingKeys("old"))
    node.rotation.start()
    node.finish()

    with recorded_events() as events:
        reply = node.rotate()

    assert isinstance(reply, ApiError)
    assert reply.kind is ErrorKind.STORAGE_FAILED
    assert "no space left" in reply.detail
    assert events.named("encryption.rotation_failed")
    assert "no space left" in node.rotation.status.problem
    assert node.rotation.metrics.failures.count == 1
    assert set(keys_in_use(node.disk, node.directory)) == {"old"}


def test_another_key_under_the_same_name_is_refused_and_nothing_is_written_under_it() -> None:
    service = ChangedKeys("main")
    node = node_with_records(service)
    node.rotation.start()
    node.finish()

    service.is_changed = True
    with recorded_events() as events:
        reply = node.rotate()
    for one in node.logs:
        node.put(one.log)

    assert isinstance(reply, ApiError)
    assert reply.kind is ErrorKind.STORAGE_FAILED
    assert "another key that is called 'main'" in reply.detail
    assert events.named("encryption.rotation_failed")
    assert "'main'" in node.rotation.status.problem
    # None was made beside it, either.
    assert (service.made, service.names) == (0, ("main",))
    before = node.contents()
    node.close()
    service.is_changed = False
    assert EncryptedNode(node.disk, service).contents() == before


def test_another_key_under_the_same_name_is_refused_when_the_rotation_is_due() -> None:
    service = ChangedKeys("main")
    node = node_with_records(service, interval_ms=10_000)
    told: list[Rotated | ApiError] = []
    node.rotation.on_due_rotation = told.append
    node.rotation.start()

    service.is_changed = True
    node.go_on(16)

    assert told
    assert all(isinstance(reply, ApiError) for reply in told)
    assert node.vault.keys == FixedKeys("main").load()


def test_a_node_takes_the_key_that_another_one_has_had_made() -> None:
    service = FixedKeys("old")
    first, second = node_with_records(service), node_with_records(service)

    made = first.rotate()
    taken = second.rotate()

    assert made == taken
    assert len(service.names) == 2


def test_what_cannot_be_written_again_is_named_with_the_key_that_it_needs() -> None:
    node = node_with_records()
    stranger = "set-aside/orders-9"
    node.disk.make_directory(stranger)
    table = node.disk.open(f"{stranger}/keys", create=True)
    table.append(node.disk.read("logs/orders/0/keys"))
    table.close()

    with recorded_events() as events:
        node.rotate()

    (said,) = events.named("encryption.key_needed")
    assert (said["key"], said["paths"]) == ("old", [stranger])
    assert events.named("encryption.keys_not_needed") == []
    (_, old) = node.rotation.status.keys
    assert (old.name, old.uses, old.examples) == ("old", 1, (stranger,))


def test_a_key_that_is_gone_at_its_source_is_kept_while_something_is_under_it() -> None:
    node = node_with_records()
    before = node.contents()
    # Nothing reaches the disk: tables stay under the old key.
    node.syncs.held = True
    node.rotation.rotate(lambda _: None)
    node.settle()
    node.service.names = node.service.names[1:]
    node.vault.adopt(node.service.load())

    assert "old" in node.vault.keys.secrets
    node.syncs.held = False
    node.finish()

    assert set(keys_in_use(node.disk, node.directory)) == set(node.service.names)
    node.close()
    assert EncryptedNode(node.disk, node.service).contents() == before


def test_a_key_that_is_old_enough_is_replaced_unasked() -> None:
    node = node_with_records(interval_ms=10_000)
    told: list[Rotated | ApiError] = []
    node.rotation.on_due_rotation = told.append
    node.rotation.start()

    node.go_on(8)
    assert node.rotation.metrics.rotations.count == 0
    node.go_on(8)

    assert len(node.service.names) == 2
    assert set(keys_in_use(node.disk, node.directory)) == {node.service.names[-1]}
    assert told == [Rotated(node.service.names[-1], is_new=True)]


def test_a_service_whose_keys_are_made_elsewhere_is_not_asked_at_every_look() -> None:
    service = SameKeys("old")
    node = node_with_records(service, interval_ms=100_000)
    node.rotation.start()

    node.go_on(250)

    # After the interval, and then again after it.
    assert service.asked == 2
    assert node.rotation.metrics.rotations.count == 0


def test_a_rotation_while_one_is_being_asked_for_is_refused() -> None:
    node = node_with_records()
    replies: list[Rotated | ApiError] = []

    node.rotation.rotate(replies.append)
    node.rotation.rotate(replies.append)

    assert isinstance(replies[0], ApiError)
    node.finish()
    assert isinstance(replies[1], Rotated)


def test_a_damaged_segment_is_left_out_of_a_reseal_and_named() -> None:
    node = node_with_records()
    path = "logs/orders/0/00000000000000000000.log"
    node.disk.flip_bit(path, 8 * (len(node.disk.read(path)) - 5))

    with recorded_events() as events:
        node.rotate(reseal=True)

    (said,) = events.named("encryption.reseal_completed")
    assert said["left_out"] == ["orders/0"]
    assert node.rotation.status.reseal.left_out == ("orders/0",)
    assert events.named("encryption.segment_not_resealed")
    # The other segments are done.
    assert node.rotation.metrics.resealed_bytes.count > 1_000


class InterruptedDisk(CrashableDisk):
    """A disk on which something else happens while a thread is about to write the keys of the directory."""

    def __init__(self) -> None:
        super().__init__()
        self.interrupt: Callable[[], None] | None = None

    def open(
        self, path: str, *, create: bool = False, exclusive: bool = False, readonly: bool = False
    ) -> CrashableFile:
        if create and path.startswith("meta/encryption") and self.interrupt is not None:
            interrupt, self.interrupt = self.interrupt, None
            interrupt()
        return super().open(path, create=create, exclusive=exclusive, readonly=readonly)


def test_a_slow_thread_does_not_bring_back_a_key_that_was_rotated_meanwhile() -> None:
    disk, service = InterruptedDisk(), FixedKeys("old")
    disk.make_directory("")
    EncryptedNode(disk, service).fill().close()
    service.names = ("old", "new")
    node = EncryptedNode(disk, service)
    replies: list[Rotated | ApiError] = []

    def rotate() -> None:
        node.rotation.rotate(replies.append)
        node.go_on(1)

    disk.interrupt = rotate
    node.rotation.start()
    node.finish()

    (reply,) = replies
    assert isinstance(reply, Rotated)
    assert set(keys_in_use(disk, node.directory)) == {reply.current}
    assert [use.name for use in node.rotation.status.keys] == [reply.current]


def test_keys_that_were_read_before_a_rotation_and_come_after_it_do_not_undo_it() -> None:
    service = InterruptedKeys("old")
    node = node_with_records(service)
    node.rotation.start()
    node.finish()
    logs = LogManager(node.runtime, LogStore(node.disk, node.disk, node.commit, vault=node.vault))
    replies: list[Rotated | ApiError] = []

    service.interrupt = lambda: replies.append(node.rotate())
    # As when a log needs a key that is missing.
    logs.reload_keys(lambda: None)
    node.finish()

    (reply,) = replies
    assert isinstance(reply, Rotated)
    assert node.vault.keys.current == reply.current
    assert set(keys_in_use(node.disk, node.directory)) == {reply.current}
    assert node.rotation.metrics.rotations.count == 1


def test_another_current_key_that_is_read_counts_also_if_the_rotation_that_is_asked_for_then_fails() -> None:
    service = UnwillingKeys("old")
    node = node_with_records(service)
    node.rotation.start()
    node.finish()

    def read_again() -> None:
        service.names = ("old", "another node's")
        node.vault.adopt(service.load())

    service.interrupt = read_again
    reply = node.rotate()
    node.finish()

    assert isinstance(reply, ApiError)
    assert "no space left" in node.rotation.status.problem
    assert set(keys_in_use(node.disk, node.directory)) == {"another node's"}
    assert node.rotation.metrics.rotations.count == 1


def test_a_log_that_was_removed_before_its_turn_leaves_the_one_in_its_place_alone() -> None:
    node = EncryptedNode(blank_disk(), FixedKeys("old"), logs=LOGS_AT_ONCE + 1).fill(1)
    node.rotation.start()
    node.finish()
    node.syncs.held = True
    node.rotation.rotate(lambda _: None)
    node.settle()
    # The tables of the others are on the device, and have still to get their names.
    node.finish_round()

    node.make_again(LOGS_AT_ONCE)
    keys = node.logs[LOGS_AT_ONCE].log.keys
    assert keys is not None
    keys.put()
    while node.syncs.waiting:
        node.finish_round()
    node.syncs.held = False
    node.finish()
    node.close()

    again = EncryptedNode(node.disk, node.service, logs=LOGS_AT_ONCE + 1)
    assert again.contents()[LOGS_AT_ONCE] == b""
    assert set(keys_in_use(again.disk, again.directory)) == {node.vault.keys.current}
