"""The durable echo survives every fault there is, and the checker notices servers that do not."""

from collections.abc import Callable

import pytest

from penstock.core.model import StorageError
from penstock.runtime import Address, Link, Runtime
from penstock.storage.disk import Disk, File
from tests.support.echo import FILE, DurableEcho, Entry, read_entries, run_echo, write_entry

SEEDS = range(1, 21)
# Within so many seeds every planted bug must be found.
SEEDS_TO_FIND_A_BUG = 20


@pytest.mark.parametrize("seed", SEEDS)
def test_every_answered_request_is_on_disk_exactly_once(seed: int) -> None:
    verdict = run_echo(seed)

    assert verdict.anomalies == ()
    assert verdict.operations > 0


def test_the_seeds_meet_every_kind_of_fault() -> None:
    from penstock.sim.faults import ANYWHERE

    met = {kind for seed in range(1, 13) for kind in run_echo(seed).faults}

    assert met == {kind.value for kind in ANYWHERE}


class AnswersBeforeTheSync(DurableEcho):
    def _write(self, link: Link, entry: Entry) -> None:
        super()._write(link, entry)
        self._answer(link, entry.request_id, entry.payload)


class ForgetsIds(DurableEcho):
    def _synced(self, request_id: bytes, failure: StorageError | None) -> None:
        super()._synced(request_id, failure)
        del self._durable[request_id]


class ForgetsIdsAtRestart(DurableEcho):
    def _recover(self, disk: Disk) -> tuple[File, dict[bytes, None]]:
        file, _ = super()._recover(disk)
        return file, {}


class TrustsThePageCacheAtStart(DurableEcho):
    def _recover(self, disk: Disk) -> tuple[File, dict[bytes, None]]:
        disk.make_directory("echo")
        disk.sync_directory("")
        file = disk.open(FILE, create=True)
        disk.sync_directory("echo")
        entries, good = read_entries(file.pread(0, file.size()))
        file.truncate(good)
        return file, {entry.request_id: None for entry in entries}


class SyncsWithoutWritingAgain(DurableEcho):
    """After a failed sync the pages look clean: a later sync succeeds and writes nothing."""

    def _recover(self, disk: Disk) -> tuple[File, dict[bytes, None]]:
        file, ids = TrustsThePageCacheAtStart._recover(self, disk)  # type: ignore[arg-type]
        file.sync()
        return file, ids


class NeverSyncsTheDirectory(DurableEcho):
    def _recover(self, disk: Disk) -> tuple[File, dict[bytes, None]]:
        disk.make_directory("echo")
        file = disk.open(FILE, create=True)
        content = file.pread(0, file.size())
        entries, good = read_entries(content)
        file.truncate(good)
        file.pwrite(0, content[:good])
        file.sync()
        return file, {entry.request_id: None for entry in entries}


class KeepsATornTail(DurableEcho):
    def _recover(self, disk: Disk) -> tuple[File, dict[bytes, None]]:
        file, ids = super()._recover(disk)
        file.append(write_entry(Entry(b"torn" * 4, b""))[:-1])
        return file, ids


class IgnoresAFailedSync(DurableEcho):
    def _synced(self, request_id: bytes, failure: StorageError | None) -> None:
        super()._synced(request_id, None)


class InventsAnswers(DurableEcho):
    def _answer(self, link: Link, request_id: bytes, payload: bytes) -> None:
        super()._answer(link, request_id, payload.upper())


class TrustsItsPeers(DurableEcho):
    def received(self, link: Link, frame: bytes) -> None:
        request_id = frame[1:17]
        assert request_id not in self._waiting, "nobody asks twice"
        super().received(link, frame)


@pytest.mark.parametrize(
    ("server", "anomaly"),
    [
        (AnswersBeforeTheSync, "lost"),
        (ForgetsIds, "duplicate"),
        (ForgetsIdsAtRestart, "duplicate"),
        (TrustsThePageCacheAtStart, "lost"),
        (SyncsWithoutWritingAgain, "lost"),
        (NeverSyncsTheDirectory, "lost"),
        (KeepsATornTail, "lost"),
        (IgnoresAFailedSync, "lost"),
        (InventsAnswers, "unexpected"),
        (TrustsItsPeers, "server died of AssertionError"),
    ],
)
def test_a_planted_bug_is_found_within_a_few_seeds(
    server: Callable[[Runtime, Disk, Address], DurableEcho], anomaly: str
) -> None:
    found = next(
        (v for seed in range(1, SEEDS_TO_FIND_A_BUG + 1) if not (v := run_echo(seed, server)).passed), None
    )

    assert found is not None, f"not found within {SEEDS_TO_FIND_A_BUG} seeds"
    assert any(line.startswith(anomaly) for line in found.anomalies), found.anomalies


def test_a_failing_seed_fails_again_in_the_same_way() -> None:
    first = next(v for seed in SEEDS if not (v := run_echo(seed, AnswersBeforeTheSync)).passed)

    again = run_echo(first.seed, AnswersBeforeTheSync)

    assert again == first
