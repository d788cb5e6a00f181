"""Compaction at any moment, and power cuts at every moment of it: no key loses its latest record."""

import re
from contextlib import suppress

import pytest

from penstock.core.records import Record
from penstock.storage.disk import CrashableDisk, CrashableFile, PowerCut
from penstock.storage.log import compaction
from penstock.storage.log.checkpoint import rename_checkpoint
from penstock.storage.log.compaction import CleaningResult, OffsetMap
from penstock.storage.log.durability import Durability
from penstock.storage.log.files import Checkpoint
from penstock.storage.log.state import LogState
from tests.property.storage.keyed_log_runs import KeyedLives

STEPS = 60


@pytest.mark.parametrize("seed", range(12))
def test_a_compacted_log_agrees_with_a_history_of_its_records(seed: int) -> None:
    run = KeyedLives(seed)

    for _ in range(4):
        run.live(3 * STEPS, None)

    assert run.complaints == []
    assert run.compactions > 3
    assert run.records_dropped > 20
    assert run.absorbed > 3


@pytest.mark.parametrize("seed", range(20))
def test_power_cuts_at_random_moments_lose_no_latest_record(seed: int) -> None:
    run = KeyedLives(seed)

    for _ in range(15):
        run.live(STEPS, run.chance.randint(1, 250))
    run.live(STEPS, None)

    assert run.complaints == []
    assert run.compactions > 0


def find_at_every_operation(seeds: range, *, is_prepared: bool) -> list[str]:
    """Compact a grown log, cut the power at each of its operations, and start again.

    Every other log has been compacted before, so that small neighbours become one.
    """
    for seed in seeds:
        operations = _compact_grown(_lives(seed, is_prepared=is_prepared), None)
        for operation in range(1, operations + 1):
            run = _lives(seed, is_prepared=is_prepared)
            _compact_grown(run, operation)
            run.live(5, None)
            run.live(5, None)
            if run.complaints:
                return [f"seed {seed}, power off at operation {operation}", *run.complaints]
    return []


def _lives(seed: int, *, is_prepared: bool) -> KeyedLives:
    run = KeyedLives(seed)
    run.prepared_share = float(is_prepared)
    return run


def _compact_grown(run: KeyedLives, cut_at: int | None) -> int:
    run.start()
    _grow(run, 5)
    if run.seed % 2:
        run.compact()
        run.compact()
        run.checkpoint()
        run.checkpoint()
        _grow(run, len(run.log.segments()) + 1)
    before = run.disk.operations
    run.disk.cut_power_at(cut_at)
    with suppress(PowerCut):
        run.compact()
        run.compact()
        # What was prepared is put in place when its round ends, and a checkpoint follows.
        run.checkpoint()
        run.checkpoint()
    operations = run.disk.operations - before
    run.lose_power()
    return operations


def _grow(run: KeyedLives, segments: int) -> None:
    while len(run.log.segments()) < segments:
        run.append()
    run.checkpoint()


@pytest.mark.parametrize("is_prepared", [True, False])
def test_no_operation_of_a_compaction_is_a_bad_moment_to_lose_power(*, is_prepared: bool) -> None:
    assert find_at_every_operation(range(4), is_prepared=is_prepared) == []


def test_a_map_that_mixes_keys_up_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = OffsetMap.is_outdated

    def hasty(self: OffsetMap, record: Record) -> bool:
        return honest(self, record) or honest(self, record._replace(key=b"key-0"))

    monkeypatch.setattr(OffsetMap, "is_outdated", hasty)
    run = KeyedLives(1)

    run.live(3 * STEPS, None)

    assert any("missing" in complaint for complaint in run.complaints)


def test_a_swap_without_a_checkpoint_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "write_checkpoint", lambda state, checkpoint: None)

    assert find_at_every_operation(range(3), is_prepared=False) != []


def test_a_prepared_swap_without_a_checkpoint_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "rename_checkpoint", lambda state, checkpoint, temporary: None)

    assert find_at_every_operation(range(3), is_prepared=True) != []


def test_a_swap_before_its_checkpoint_is_durable_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = rename_checkpoint

    def hasty(state: LogState, captured: Checkpoint, temporary: str) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(CrashableDisk, "sync_directory", lambda self, path: None)
            honest(state, captured, temporary)

    monkeypatch.setattr(compaction, "rename_checkpoint", hasty)

    assert find_at_every_operation(range(12), is_prepared=True) != []


@pytest.mark.parametrize("which", ["names before", "names behind"])
def test_names_of_a_prepared_swap_that_are_not_durable_are_noticed(
    monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    step = {"names before": "_prepare_files", "names behind": "finish"}[which]
    honest, request = getattr(compaction.Compaction, step), Durability.request_names

    def forgetful(self: compaction.Compaction, *args: object) -> object:
        # Nobody syncs the directory, unless a later checkpoint happens to.
        with monkeypatch.context() as patch:
            patch.setattr(Durability, "request_names", lambda self, done=None: None)
            return honest(self, *args)

    monkeypatch.setattr(compaction.Compaction, step, forgetful)

    assert find_at_every_operation(range(12), is_prepared=True) != []
    assert Durability.request_names is request


def test_a_prepared_checkpoint_that_is_not_synced_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = CrashableFile.sync

    def sync(self: CrashableFile) -> None:
        if not re.search(r"checkpoint\.t[0-9]+\.tmp$", self.path):
            honest(self)

    monkeypatch.setattr(CrashableFile, "sync", sync)

    assert find_at_every_operation(range(12), is_prepared=True) != []


def test_a_swap_whose_new_names_are_not_durable_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = compaction.Compaction._name

    def forgetful(self: compaction.Compaction, cleaned: CleaningResult) -> None:
        honest(self, cleaned)
        sync_directory = CrashableDisk.sync_directory

        def skip_once(self: CrashableDisk, path: str) -> None:
            monkeypatch.setattr(CrashableDisk, "sync_directory", sync_directory)

        monkeypatch.setattr(CrashableDisk, "sync_directory", skip_once)

    monkeypatch.setattr(compaction.Compaction, "_name", forgetful)

    assert find_at_every_operation(range(12), is_prepared=False) != []


def test_rewritten_segments_that_are_not_synced_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = CrashableFile.sync

    def sync(self: CrashableFile) -> None:
        if not self.path.endswith(".cleaned"):
            honest(self)

    monkeypatch.setattr(CrashableFile, "sync", sync)

    assert find_at_every_operation(range(3), is_prepared=True) != []


def test_a_start_that_does_not_finish_a_swap_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(disk: CrashableDisk, directory: str, checkpoint: Checkpoint) -> None:
        pass

    monkeypatch.setattr("penstock.storage.log.recovery.redo_swaps", nothing)

    assert find_at_every_operation(range(3), is_prepared=True) != []
