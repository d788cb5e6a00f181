"""Where a reseal is, as `meta/reseal` says it: what slow threads, failures and power cuts make of it."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random  # noqa: TID251  seeded

import pytest

from penstock.broker.encryption.key_rotation import Rotated
from penstock.broker.encryption.segment_reseal import read_position, write_position
from penstock.core.model import ApiError, StorageError
from penstock.storage.disk import CrashableDisk, PowerCut
from penstock.storage.disk.memory import CrashableFile
from tests.support.key_vaults import FixedKeys
from tests.support.recorded_events import recorded_events
from tests.unit.broker.encryption.encrypted_node import EncryptedNode, blank_disk

# A segment of 600 bytes takes seconds, so that the position is saved in the middle; or a moment.
SLOW, FAST = 100, 32 << 20


@dataclass
class FirstReseal:
    """A reseal that was promised and is under way, and whose thread that saves its position is slow.

    `at_first` are the data keys of before it, and `former` those of now, a little later.
    """

    node: EncryptedNode
    at_first: list[set[bytes]]
    former: list[set[bytes]]
    replies: list[Rotated | ApiError] = field(default_factory=list)

    def promise_another(self) -> None:
        """Ask for a second reseal; threads that get their work from now on are fast."""
        self.node.threads.hold(None)
        self.node.rotation.rotate(self.replies.append, reseal=True)
        self.node.settle()

    @property
    def is_promised(self) -> bool:
        return any(isinstance(reply, Rotated) for reply in self.replies)


def first_reseal(bytes_per_second: int, disk: CrashableDisk | None = None) -> FirstReseal:
    service = FixedKeys("old")
    node = EncryptedNode(disk or blank_disk(), service, reseal_bytes_per_second=bytes_per_second).fill()
    node.rotation.start()
    node.finish()
    at_first = node.keys_on_disk()
    node.rotation.rotate(lambda _: None, reseal=True)
    node.settle()
    node.threads.hold(write_position)
    for _ in range(3_000):
        node.timers.pass_ms(100)
        node.settle()
        if node.threads.waiting:
            return FirstReseal(node, at_first, node.keys_on_disk())
    raise AssertionError("nothing was saved")


def keys_after_restart(disk: CrashableDisk, service: FixedKeys) -> list[set[bytes]]:
    again = EncryptedNode(disk, service)
    again.rotation.start()
    again.finish()
    return again.keys_on_disk()


def in_both(some: list[set[bytes]], others: list[set[bytes]]) -> list[bytes]:
    return [key for one, other in zip(some, others, strict=True) for key in sorted(one & other)]


@pytest.mark.parametrize("bytes_per_second", [SLOW, FAST])
def test_a_slow_save_of_the_first_reseal_does_not_take_the_place_of_the_promise_of_a_second(
    bytes_per_second: int,
) -> None:
    first = first_reseal(bytes_per_second)

    first.promise_another()
    first.node.threads.let_go()
    first.node.settle()

    assert first.is_promised
    now = keys_after_restart(first.node.disk.crash(Random(1)), first.node.service)
    assert in_both(first.former, now) == []


@pytest.mark.parametrize("bytes_per_second", [SLOW, FAST])
def test_a_power_cut_at_any_step_leaves_the_first_reseal_where_it_was_or_the_second_from_its_beginning(
    bytes_per_second: int,
) -> None:
    def promise(first: FirstReseal) -> None:
        with suppress(PowerCut):
            first.promise_another()
            first.node.threads.let_go()
            first.node.settle()
            first.node.go_on(2)

    probe = first_reseal(bytes_per_second)
    start, started = probe.node.disk.operations, read_position(probe.node.disk)
    assert started is not None
    promise(probe)
    count = probe.node.disk.operations - start
    assert count > 30
    for operation in range(1, count, 1 + count // 60):
        first = first_reseal(bytes_per_second)
        first.node.disk.cut_power_at(operation)
        promise(first)
        disk = first.node.disk.crash(Random(operation))

        position = read_position(disk)
        assert position is not None
        if first.is_promised:
            assert position.started > started.started
        now = keys_after_restart(disk, first.node.service)
        assert in_both(first.at_first, now) == []
        if first.is_promised:
            assert in_both(first.former, now) == []


@pytest.mark.parametrize("bytes_per_second", [SLOW, FAST])
def test_a_reseal_goes_on_if_another_one_cannot_be_noted(bytes_per_second: int) -> None:
    first = first_reseal(bytes_per_second)
    node = first.node

    node.rotation.rotate(first.replies.append, reseal=True)
    # The save, and then the note behind it.
    node.threads.let_go()
    node.settle()
    with recorded_events() as events:
        node.threads.hold(None)
        node.threads.let_go(StorageError("no space left"))
        node.finish()

    (reply,) = first.replies
    assert isinstance(reply, ApiError)
    assert "no space left" in reply.detail
    assert len(events.named("encryption.reseal_completed")) == 1
    assert in_both(first.at_first, node.keys_on_disk()) == []
    position = read_position(node.disk)
    assert position is not None
    assert position.is_done


def test_a_reseal_that_was_promised_does_not_begin_while_another_one_is_noted() -> None:
    node = EncryptedNode(blank_disk(), FixedKeys("old")).fill()
    node.rotation.start()
    node.finish()
    replies: list[Rotated | ApiError] = []
    # The keys of the logs are not under the new key yet.
    node.syncs.held = True
    node.rotation.rotate(replies.append, reseal=True)
    node.settle()
    node.threads.hold(write_position)
    node.rotation.rotate(replies.append, reseal=True)
    node.settle()
    assert len(replies) == len(node.threads.waiting) == 1

    with recorded_events() as events:
        node.syncs.held = False
        node.go_on(1)
        assert events.named("encryption.reseal_started") == []
        node.threads.hold(None)
        node.threads.let_go()
        node.finish()

    assert len(replies) == 2
    assert len(events.named("encryption.reseal_completed")) == 1


def test_a_reseal_that_is_stopped_for_another_one_leaves_no_files_and_no_keys_of_segments_under_way() -> None:
    first = first_reseal(SLOW)
    node = first.node
    node.threads.hold(None)
    node.threads.let_go()
    node.settle()
    # What was written of the next segment has its time now.
    node.go_on(1)
    assert any(path.endswith(".tmp") for path in node.disk.files())

    node.rotation.rotate(first.replies.append, reseal=True)
    node.settle()

    assert [path for path in node.disk.files() if path.endswith(".tmp")] == []
    assert [one.log.keys.table.candidates for one in node.logs if one.log.keys is not None] == [(), ()]


class SlowReads(CrashableDisk):
    """A disk on which something else happens while a thread reads the position."""

    def __init__(self) -> None:
        super().__init__()
        self.interrupt: Callable[[], None] | None = None

    def open(
        self, path: str, *, create: bool = False, exclusive: bool = False, readonly: bool = False
    ) -> CrashableFile:
        file = super().open(path, create=create, exclusive=exclusive, readonly=readonly)
        if readonly and path == "meta/reseal" and self.interrupt is not None:
            interrupt, self.interrupt = self.interrupt, None
            interrupt()
        return file


def test_a_position_that_is_read_at_the_start_does_not_count_if_a_reseal_was_promised_meanwhile() -> None:
    disk = SlowReads()
    disk.make_directory("")
    first = first_reseal(SLOW, disk)
    first.node.threads.let_go()
    first.node.settle()
    first.node.close()
    again = EncryptedNode(disk, first.node.service, reseal_bytes_per_second=SLOW)

    def promise() -> None:
        again.rotation.rotate(first.replies.append, reseal=True)
        again.go_on(1)

    disk.interrupt = promise
    again.rotation.start()
    again.finish()

    assert first.is_promised
    assert in_both(first.former, again.keys_on_disk()) == []
