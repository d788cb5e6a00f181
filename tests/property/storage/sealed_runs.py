"""Logs that seal their batches, rotate their keys and rewrite their segments, from power cut to power cut."""

import random
from dataclasses import replace

from penstock.core.model import PartitionIndex
from penstock.core.records import HEADER_BYTES
from penstock.storage.disk import CrashableDisk, Disk
from penstock.storage.log import PartitionLog, SegmentDraft
from penstock.storage.sealing import KeyVault, LogVault
from tests.property.storage.journal_runs import JournaledLives
from tests.property.storage.keyed_log_runs import KeyedLives
from tests.property.storage.log_runs import TOPIC, Lives
from tests.support.key_vaults import FixedKeys


def vault_of(chance: random.Random) -> LogVault:
    service = FixedKeys("first")
    keys = random.Random(chance.random())
    vault = KeyVault(service, service.load(), keys.randbytes)
    # As in a new directory: a log that a start finds without a key table is not opened.
    vault.has_all_tables = True
    return vault.of(TOPIC, PartitionIndex(0))


class KeyDeeds:
    """What is done to the keys of a log while it runs."""

    def __init__(self, chance: random.Random, vault: LogVault) -> None:
        self._chance = chance
        self._vault = vault.vault
        self._rotations = 0
        self.resealed = 0
        self.rewrapped = 0

    def rotate(self, log: PartitionLog) -> None:
        """Another master key, and the key table under it, some rounds later."""
        self._rotations += 1
        self._vault.adopt(self._vault.service.rotate(self._rotations))
        log.rewrap(lambda error: self._wrapped(is_done=error is None))

    def _wrapped(self, *, is_done: bool) -> None:
        self.rewrapped += is_done

    def reseal(self, log: PartitionLog, disk: Disk) -> None:
        """Rewrite a segment under a new key, or give that up on the way."""
        if log.keys is None or log.stopped is not None or not log.is_checkpointed:
            return
        segments = log.segments()[:-1]
        if not segments:
            return
        self._rotations += 1
        draft = log.begin_reseal(f"r{self._rotations}", self._chance.choice(segments).base_offset)
        if draft is not None:
            self._write(log, disk, draft)

    def _write(self, log: PartitionLog, disk: Disk, draft: SegmentDraft) -> None:
        while draft.next is not None:
            draft.copy(disk)
        draft.seal(disk)
        if self._chance.random() < 0.8 and log.finish_refill(draft):
            self.resealed += 1
        else:
            draft.abandon()
            draft.cancel(disk)

    def renew(self, log: PartitionLog) -> None:
        if log.stopped is None:
            log.renew_key()


class SealedLives(Lives):
    """A log that is encrypted, from power cut to power cut; with `switches`, not all of the time."""

    def __init__(self, seed: int, *, switches: bool = False) -> None:
        super().__init__(seed)
        self.vault = vault_of(self.chance)
        self.options = replace(self.options, is_encrypted=True)
        self.deeds = KeyDeeds(self.chance, self.vault)
        self._switches = switches

    def step(self) -> None:
        act = self.chance.random()
        if act < 0.03:
            self.deeds.rotate(self.log)
        elif act < 0.1:
            self.deeds.reseal(self.log, self.disk)
        elif act < 0.12:
            self.deeds.renew(self.log)
        elif act < 0.16 and self._switches:
            self.options = replace(self.options, is_encrypted=not self.options.is_encrypted)
            self.log.configure(self.options)
        else:
            super().step()


class SealedJournaledLives(JournaledLives):
    """The same with a journal."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.vault = vault_of(self.chance)
        self.options = replace(self.options, is_encrypted=True)
        self.deeds = KeyDeeds(self.chance, self.vault)

    def step(self) -> None:
        act = self.chance.random()
        if act < 0.03:
            self.deeds.rotate(self.log)
        elif act < 0.1:
            self.deeds.reseal(self.log, self.disk)
        else:
            super().step()


class SealedKeyedLives(KeyedLives):
    """A compacted log that is encrypted."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.vault = vault_of(self.chance)
        self.options = replace(self.options, is_encrypted=True)
        self.deeds = KeyDeeds(self.chance, self.vault)

    def step(self) -> None:
        if self.chance.random() < 0.1:
            self.deeds.reseal(self.log, self.disk)
        else:
            super().step()


def in_clear(disk: CrashableDisk, log: PartitionLog) -> list[str]:
    """The files that hold what is behind the header of any batch of the log."""
    found = list[str]()
    files = {path: disk.read(path) for path in disk.files()}
    offset = log.start
    while offset < log.end:
        content = log.read(offset, 1).to_bytes()
        if not content:
            break
        found += [path for path, stored in files.items() if content[HEADER_BYTES:] in stored]
        offset = type(offset)(int.from_bytes(content[:8], "big") + int.from_bytes(content[23:27], "big") + 1)
    return found
