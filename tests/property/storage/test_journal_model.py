"""Several logs with one journal against a model: what each must hold after any history."""

import random
from collections.abc import Callable
from typing import Any
from uuid import UUID

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from penstock.core.model import LeaderEpoch, Offset, PartitionIndex, StorageError, Timestamp, TopicId
from penstock.core.records import Record, check_batches, write_batch
from penstock.storage.commit import GroupCommit
from penstock.storage.disk import CrashableDisk
from penstock.storage.journal import CommitJournal, JournalOptions, JournalPlace
from penstock.storage.log import LogOptions, PartitionLog
from tests.property.storage.log_runs import Rounds

TOPIC = TopicId(UUID(int=3))
LOGS = 3
OPTIONS = LogOptions(segment_bytes=1500, index_interval_bytes=200)
JOURNAL = JournalOptions(first_bytes=1024, file_bytes=2048, entry_bytes_max=400, full_files_max=1)
LOG = st.integers(0, LOGS - 1)


def path_of(log: int) -> str:
    return f"logs/orders/{log}"


class JournaledLogs(RuleBasedStateMachine):
    """The model of a log is its batches, and how many of them were called durable."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = CrashableDisk()
        self.disk.make_directory("meta")
        self.disk.sync_directory("")
        self.chance = random.Random(1)
        self.batches: list[list[bytes]] = [[] for _ in range(LOGS)]
        self.durable = [0] * LOGS
        self.generation = [0] * LOGS
        self.number = 0
        self.work: list[tuple[Callable[[], Any], Callable[[Any], None]]] = []
        self._begin(expected=False)
        self.logs = [
            PartitionLog.create(
                self.disk, path_of(log), TOPIC, OPTIONS, commit=self.commit, journal=self._journal_of(log)
            )
            for log in range(LOGS)
        ]

    def _begin(self, *, expected: bool) -> None:
        self.rounds = Rounds(self.chance)
        self.work = []
        place = JournalPlace(
            self.disk,
            self.disk,
            lambda: self.chance.getrandbits(32),
            lambda work, done, _: self.work.append((work, done)),
        )
        self.journal = CommitJournal.open(place, JOURNAL, expected=expected)
        self.commit = GroupCommit(self.rounds, journal=self.journal)
        assert not self.journal.damage

    def _journal_of(self, log: int) -> Any:
        return self.journal.of(TOPIC, PartitionIndex(log))

    @rule(log=LOG, size=st.sampled_from([1, 50, 300, 700]))
    def append(self, log: int, size: int) -> None:
        self.number += 1
        batch = write_batch([Record(0, self.number, None, b"%d " % self.number * size, ())][:1])
        self.logs[log].append(batch, check_batches(batch), LeaderEpoch(0), Timestamp(1))
        self.batches[log].append(bytes(batch))

    @rule(log=LOG, shared=st.booleans())
    def sync(self, log: int, shared: bool) -> None:
        end, generation = len(self.batches[log]), self.generation[log]

        def done(error: StorageError | None) -> None:
            # A log that was cut, removed or opened again since has another end.
            if generation == self.generation[log]:
                assert error is None, error
                self.durable[log] = max(self.durable[log], end)

        (self.logs[log].sync_shared if shared else self.logs[log].sync)(done)

    @rule(log=LOG, sizes=st.lists(st.sampled_from([1, 50, 300]), min_size=1, max_size=3))
    def publish(self, log: int, sizes: list[int]) -> None:
        """Append and wait until it is durable, as a producer does."""
        for size in sizes:
            self.append(log, size)
        self.sync(log, shared=False)
        self.finish_round()
        self.finish_round()

    @rule()
    def finish_round(self) -> None:
        self.rounds.finish()

    @precondition(lambda self: self.work)
    @rule()
    def finish_work(self) -> None:
        work, done = self.work.pop(0)
        done(work())

    @rule(log=LOG)
    def checkpoint(self, log: int) -> None:
        self.logs[log].checkpoint()

    @rule(log=LOG, is_on=st.booleans())
    def switch(self, log: int, is_on: bool) -> None:
        self.logs[log].use_journal(is_on=is_on)

    @rule(log=LOG, data=st.data())
    def truncate(self, log: int, data: st.DataObject) -> None:
        end = data.draw(st.integers(0, len(self.batches[log])))
        if self.logs[log].truncate_to(Offset(end)) == end and end < len(self.batches[log]):
            self.generation[log] += 1
            del self.batches[log][end:]
            self.durable[log] = end

    @rule(log=LOG)
    def make_again(self, log: int) -> None:
        """The log is removed, and a new one of the same topic is made."""
        self.logs[log].abandon()
        self.journal.removed(TOPIC, PartitionIndex(log))
        self.disk.remove_tree(path_of(log))
        PartitionLog.create(self.disk, path_of(log), TOPIC, OPTIONS, position=self.journal.position()).close()
        self.batches[log], self.durable[log] = [], 0
        self.generation[log] += 1
        self._open(log)

    def _open(self, log: int) -> None:
        opened, report = PartitionLog.open(
            self.disk, path_of(log), TOPIC, OPTIONS, commit=self.commit, journal=self._journal_of(log)
        )
        assert report.lost is None
        assert not report.doubt
        self.logs = [*self.logs[:log], opened, *self.logs[log + 1 :]]

    @rule(seed=st.integers(0, 1 << 30), only_the_process=st.booleans())
    def crash(self, seed: int, only_the_process: bool) -> None:
        self.disk = self.disk.copy() if only_the_process else self.disk.crash(random.Random(seed))
        self.generation = [generation + 1 for generation in self.generation]
        self._begin(expected=True)
        for log in range(LOGS):
            self._open(log)
            end = int(self.logs[log].end)
            assert self.durable[log] <= end <= len(self.batches[log])
            del self.batches[log][end:]
            self.durable[log] = end

    @rule()
    def restart_in_order(self) -> None:
        while self.rounds.finish():
            pass
        for log in self.logs:
            log.close()
        while self.rounds.finish():
            pass
        self.journal.close()
        self.durable = [len(batches) for batches in self.batches]
        self.crash(seed=0, only_the_process=True)

    @invariant()
    def every_log_holds_what_was_appended(self) -> None:
        for log, batches in zip(self.logs, self.batches, strict=True):
            assert log.end == len(batches)
            content, offset = bytearray(), log.start
            while offset < log.end:
                part = log.read(offset, 1 << 20).to_bytes()
                content += part
                offset = Offset(check_batches(part)[-1].next_offset)
            assert content == b"".join(batches)


def test_a_first_frame_that_has_no_room_in_the_first_file_is_found_after_a_power_cut() -> None:
    machine = JournaledLogs()
    machine.publish(log=0, sizes=[1, 1, 1])
    machine.publish(log=0, sizes=[1, 1])
    for _ in range(5):
        machine.crash(only_the_process=False, seed=0)
    machine.publish(log=0, sizes=[1, 1, 1])
    machine.crash(only_the_process=False, seed=0)

    machine.publish(log=0, sizes=[50, 50])
    assert machine.journal._active.number == machine.journal._state.first + 1
    machine.crash(only_the_process=False, seed=0)

    machine.every_log_holds_what_was_appended()


JournaledLogs.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestJournaledLogs = JournaledLogs.TestCase


def test_a_checkpoint_that_a_killed_process_left_to_the_page_cache_is_no_sign_of_an_older_copy() -> None:
    state = JournaledLogs()
    state.restart_in_order()
    # It is renamed, and its name is not durable yet.
    state.checkpoint(log=0)
    state.finish_round()
    state.publish(log=1, sizes=[1])
    state.crash(only_the_process=True, seed=0)
    # The log is as its checkpoint says, so that nothing is written when it is closed.
    state.restart_in_order()

    # The power cut brings back the checkpoint before it.
    state.crash(only_the_process=False, seed=1)

    state.every_log_holds_what_was_appended()
    state.teardown()
