"""A log with a vault: what is on disk says nothing, and readers see what was sent."""

import random
from contextlib import suppress
from dataclasses import replace

import pytest
from fastcrc import crc32

from penstock.core.model import LeaderEpoch, Offset, PartitionIndex, Timestamp
from penstock.core.records import (
    BatchIncomplete,
    Record,
    check_batches,
    read_header,
    read_records,
    write_batch,
)
from penstock.core.records.batch import SEALED
from penstock.storage.disk import FailingDisk, PowerCut
from penstock.storage.log import (
    CompactionRules,
    CorruptRange,
    LogOptions,
    MissingRange,
    OtherRecords,
    PartitionLog,
    SealedRange,
    SegmentDraft,
    cleaner_for,
)
from penstock.storage.log.file_names import KEYS
from penstock.storage.log.keys import opened_table
from penstock.storage.sealing import BrokenEnvelope, BrokenSeal, KeyUnavailable, KeyVault
from penstock.storage.sealing.vault import master_key_of
from tests.support.key_vaults import vault_of
from tests.unit.storage.log.conftest import DIRECTORY, OPTIONS, TOPIC, Bench

MARKER = b"nobody may read this"
SEALING = replace(OPTIONS, is_encrypted=True)
FIRST = f"{DIRECTORY}/00000000000000000000.log"


def sealed_bench(vault: KeyVault | None = None, options: LogOptions = SEALING) -> Bench:
    return Bench(options=options, vault=vault or vault_of())


def put(bench: Bench, *values: bytes, key: bytes | None = None) -> bytes:
    """Append records; returns the batch as it was sent, with its offset."""
    batch = write_batch([Record(0, 1_000, key or value, value, (("h", value),)) for value in values])
    bench.log.append(batch, check_batches(batch), LeaderEpoch(0), Timestamp(1))
    return bytes(batch)


def everything(log: PartitionLog) -> bytes:
    found, offset = b"", int(log.start)
    while offset < log.end:
        content = log.read(Offset(offset), 100_000).to_bytes()
        found += content
        offset = check_batches(content, compacted=True)[-1].next_offset
    return found


def values(log: PartitionLog) -> list[bytes | None]:
    content, found, at = memoryview(everything(log)), list[bytes | None](), 0
    for header in check_batches(content, compacted=True):
        found += [record.value for record in read_records(content[at : at + header.size_bytes])]
        at += header.size_bytes
    return found


def files_with(bench: Bench, marker: bytes) -> list[str]:
    return [path for path in bench.crashable.files() if marker in bench.crashable.read(path)]


def lose_power(bench: Bench, seed: int = 1) -> None:
    bench.crashable = bench.crashable.crash(random.Random(seed))
    bench.disk = FailingDisk(bench.crashable)


def overwrite(bench: Bench, path: str, content: bytes) -> None:
    with_it = bench.crashable.open(path, create=True)
    with_it.truncate(0)
    with_it.append(content)
    with_it.sync()
    with_it.close()


def scrubbed(log: PartitionLog) -> list[CorruptRange]:
    return [step.damage for step in log.scrub() if step.damage is not None]


def test_readers_get_every_byte_that_was_sent_and_no_file_has_any_of_it() -> None:
    bench = sealed_bench()

    sent = b"".join(put(bench, MARKER + b"%d" % number) for number in range(30))

    assert everything(bench.log) == sent
    bench.checkpoint()
    assert everything(bench.log) == sent
    assert len(bench.segment_bases()) > 3
    assert files_with(bench, MARKER) == []


def test_what_was_synced_before_the_power_went_is_read_after_it() -> None:
    bench = sealed_bench()
    sent = b"".join(put(bench, MARKER + b"%d" % number) for number in range(30))
    bench.sync_now()

    lose_power(bench)
    bench.reopen(clean=False)

    assert everything(bench.log) == sent
    assert bench.report.corruption == ()
    assert files_with(bench, MARKER) == []


def test_each_segment_is_under_a_key_of_its_own() -> None:
    bench = sealed_bench()
    for number in range(20):
        put(bench, b"%d" % number)
        bench.sync_now()

    assert bench.log.keys is not None
    rows = bench.log.keys.table.rows
    assert [row.start for row in rows] == bench.segment_bases()
    assert len({row.key_id for row in rows}) == len(rows) > 2


def test_a_segment_that_comes_before_the_table_is_on_disk_goes_on_with_the_same_key() -> None:
    bench = sealed_bench()

    sent = b"".join(put(bench, b"%d" % number) for number in range(20))

    assert bench.log.keys is not None
    assert len(bench.log.keys.table.rows) == 2
    lose_power(bench)
    bench.reopen(clean=False)
    assert sent.startswith(everything(bench.log))


def test_a_follower_seals_what_the_leader_sent_plain_under_keys_of_its_own() -> None:
    leader, follower = sealed_bench(vault_of(start=10_000)), sealed_bench()
    put(leader, MARKER)
    content = leader.log.read(Offset(0), 10_000).to_bytes()

    follower.log.append_replica(content, check_batches(content), Timestamp(1))

    assert everything(follower.log) == everything(leader.log)
    assert leader.crashable.read(FIRST) != follower.crashable.read(FIRST)
    assert files_with(follower, MARKER) == []


def test_records_are_found_by_their_time() -> None:
    bench = sealed_bench()
    for at in (1_000, 2_000, 3_000):
        bench.append(2, at=at)

    found = bench.log.offset_for_timestamp(Timestamp(1_500))

    assert found is not None
    assert (found.offset, found.timestamp) == (2, 2_000)


@pytest.mark.parametrize("number", range(3))
def test_a_batch_that_was_changed_is_not_read_and_a_scrub_names_it(number: int) -> None:
    bench = sealed_bench()
    for value in (b"a", b"b", b"c"):
        put(bench, value)
    headers = check_batches(bench.crashable.read(FIRST), compacted=True)
    position = sum(header.size_bytes for header in headers[:number])
    forged = bytearray(bench.crashable.read(FIRST))
    forged[position + headers[number].size_bytes - 1] ^= 1
    overwrite(bench, FIRST, with_good_crcs(forged))

    with pytest.raises(BrokenSeal, match=f"offset {number}"):
        bench.log.read(Offset(number), 1).to_bytes()
    found = scrubbed(bench.log)

    assert [(damage.start, damage.end) for damage in found] == [(number, number + 1)]
    assert "seal" in found[0].reason


def with_good_crcs(content: bytearray) -> bytes:
    at = 0
    while at < len(content):
        size = 12 + int.from_bytes(content[at + 8 : at + 12], "big")
        crc = crc32.iscsi(bytes(content[at + 21 : at + size]))
        content[at + 17 : at + 21] = crc.to_bytes(4, "big")
        at += size
    return bytes(content)


def test_a_plain_batch_that_somebody_put_there_is_found_out() -> None:
    bench = sealed_bench()
    put(bench, b"a")
    plain = write_batch([Record(0, 1_000, None, b"forged", ())])
    overwrite(bench, FIRST, bytes(plain))
    size = bench.log.segments()[0].size_bytes
    assert size > len(plain)

    bench.reopen(clean=False)

    assert b"forged" not in b"".join(value or b"" for value in values_or_nothing(bench.log))


def values_or_nothing(log: PartitionLog) -> list[bytes | None]:
    try:
        return values(log)
    except BrokenSeal:
        return []


def test_batches_of_another_partition_do_not_open_here() -> None:
    vault = vault_of()
    bench, other = sealed_bench(vault), sealed_bench(vault)
    put(bench, b"a")
    put(other, b"b")

    overwrite(bench, FIRST, other.crashable.read(FIRST))

    with pytest.raises(BrokenSeal):
        bench.log.read(Offset(0), 1).to_bytes()


def test_damage_is_filled_from_another_replica_and_sealed_again() -> None:
    bench, other = sealed_bench(), sealed_bench()
    sent = [put(bench, MARKER + b"%d" % number) for number in range(4)]
    for batch in sent:
        other.log.append_replica(batch, check_batches(batch), Timestamp(1))
    bench.log.roll()
    bench.checkpoint()
    forged = bytearray(bench.crashable.read(FIRST))
    forged[150] ^= 1
    overwrite(bench, FIRST, with_good_crcs(forged))
    assert scrubbed(bench.log)

    draft = bench.log.begin_refill("token", may_have_gaps=False)
    assert draft is not None
    fill(bench, other, draft)

    assert everything(bench.log) == b"".join(sent)
    assert not bench.log.has_damage
    assert files_with(bench, MARKER) == []
    bench.reopen()
    assert everything(bench.log) == b"".join(sent)


def fill(bench: Bench, other: Bench, draft: SegmentDraft) -> None:
    while (part := draft.next) is not None:
        if isinstance(part, MissingRange):
            draft.add(bench.disk, other.log.read(part.start, 10_000, end=part.end).to_bytes())
        else:
            draft.copy(bench.disk)
    draft.seal(bench.disk)
    assert bench.log.finish_refill(draft)
    bench.rounds.finish_all()


def test_a_refill_takes_no_sealed_batches_of_another_node() -> None:
    vault = vault_of()
    bench, other = sealed_bench(vault), sealed_bench(vault)
    put(bench, b"a")
    bench.log.roll()
    put(other, b"a")
    bench.flip("00000000000000000000.log", 80)
    assert scrubbed(bench.log)
    draft = bench.log.begin_refill("token", may_have_gaps=False)
    assert draft is not None

    with pytest.raises(OtherRecords, match="sealed"):
        draft.add(bench.disk, other.crashable.read(FIRST))


def compacted(bench: Bench) -> None:
    bench.log.roll()
    bench.checkpoint()
    bench.log.set_high_watermark(bench.log.end)
    rules = CompactionRules(0.0, 0)
    compaction = bench.log.begin_compaction(rules, Timestamp(10_000), "token")
    assert compaction is not None
    cleaned = cleaner_for(bench.disk)(compaction.order)
    assert bench.log.finish_compaction(compaction, cleaned) is not None
    bench.rounds.finish_all()


def test_compaction_opens_what_it_reads_and_seals_what_it_writes_under_another_key() -> None:
    bench = sealed_bench()
    for number in range(6):
        put(bench, MARKER + b"%d" % number, key=b"k%d" % (number % 2))
    assert bench.log.keys is not None
    before = bench.log.keys.table.id_at(0)

    compacted(bench)

    assert values(bench.log) == [MARKER + b"4", MARKER + b"5"]
    assert bench.log.keys.table.id_at(0) != before
    assert bench.log.keys.table.candidates == ()
    assert files_with(bench, MARKER) == []
    lose_power(bench)
    bench.reopen(clean=False)
    assert values(bench.log) == [MARKER + b"4", MARKER + b"5"]


def test_what_is_written_behind_a_cut_is_under_another_key() -> None:
    bench = sealed_bench()
    for number in range(4):
        put(bench, b"%d" % number)
    assert bench.log.keys is not None
    before = bench.log.keys.table.id_at(2)

    bench.log.truncate_to(Offset(2))
    bench.rounds.finish_all()
    put(bench, b"other")

    table = bench.log.keys.table
    assert (table.id_at(1), table.candidates) == (before, ())
    assert table.id_at(2) != before
    assert values(bench.log) == [b"0", b"1", b"other"]


def test_a_log_that_is_thrown_away_goes_on_under_another_key() -> None:
    bench = sealed_bench()
    put(bench, b"a")

    bench.log.truncate_fully(Offset(100))
    bench.rounds.finish_all()
    put(bench, b"b")
    bench.reopen()

    assert values(bench.log) == [b"b"]
    assert bench.log.keys is not None
    assert [row.start for row in bench.log.keys.table.rows] == [100]


def test_a_log_without_its_master_key_does_not_open_and_opens_when_it_is_back() -> None:
    bench = sealed_bench(vault_of("old"))
    put(bench, b"a")
    bench.log.close()

    bench.vault = vault_of("new")
    with pytest.raises(KeyUnavailable, match="'old' is not there"):
        bench.reopen(clean=False)
    bench.vault = vault_of("old", "new")
    bench.reopen(clean=False)

    assert values(bench.log) == [b"a"]


def test_a_log_that_is_encrypted_does_not_open_on_a_node_without_keys() -> None:
    bench = sealed_bench()
    put(bench, b"a")
    bench.log.close()

    bench.vault, bench.options = None, OPTIONS
    with pytest.raises(KeyUnavailable, match="has no master keys"):
        bench.reopen(clean=False)


def test_a_key_table_that_was_changed_is_one_clear_error() -> None:
    bench = sealed_bench()
    put(bench, b"a")
    bench.log.close()
    bench.flip(KEYS, 40)

    with pytest.raises(BrokenEnvelope, match=f"the key table of the log {DIRECTORY} is broken"):
        bench.reopen(clean=False)


def test_a_key_table_that_is_missing_is_one_clear_error_and_no_new_one_is_made() -> None:
    bench = sealed_bench()
    put(bench, b"a")
    bench.log.close()
    bench.crashable.remove(f"{DIRECTORY}/{KEYS}")

    with pytest.raises(BrokenEnvelope, match="its key table is missing"):
        bench.reopen(clean=False)

    assert not bench.crashable.exists(f"{DIRECTORY}/{KEYS}")


@pytest.mark.parametrize("is_encrypted", [True, False])
def test_plain_segments_in_the_place_of_a_log_do_not_count_without_its_key_table(is_encrypted: bool) -> None:
    bench = sealed_bench(options=replace(OPTIONS, is_encrypted=is_encrypted))
    put(bench, b"a")
    bench.log.close()
    forged = Bench()
    put(forged, b"forged")
    forged.log.close()
    for name in bench.files():
        bench.crashable.lose(f"{DIRECTORY}/{name}")
    for name in forged.files():
        overwrite(bench, f"{DIRECTORY}/{name}", forged.crashable.read(f"{DIRECTORY}/{name}"))

    assert bench.vault is not None
    bench.vault.has_all_tables = True
    with pytest.raises(
        BrokenEnvelope, match=f"the key table of the log {DIRECTORY} is missing, and every log here has"
    ):
        bench.reopen(clean=False)

    # In a directory that was in use before it was encrypted, it may be what it says.
    bench.vault.has_all_tables = False
    bench.reopen(clean=False)
    assert values(bench.log) == [b"forged"]


def test_a_log_that_is_not_to_be_sealed_has_a_key_table_and_is_read_from_its_files() -> None:
    bench = sealed_bench(options=OPTIONS)
    sent = b"".join(put(bench, b"%d" % number) for number in range(20))
    bench.sync_now()

    was_sealed = bench.log.is_sealed
    assert bench.crashable.exists(f"{DIRECTORY}/{KEYS}")
    assert not isinstance(bench.log.read(Offset(0), 100).ranges[0], SealedRange)
    assert bench.vault is not None
    bench.vault.has_all_tables = True
    lose_power(bench)
    bench.reopen(clean=False)
    assert everything(bench.log) == sent

    bench.log.configure(SEALING)
    bench.sync_now()
    put(bench, MARKER)
    assert (was_sealed, bench.log.is_sealed) == (False, True)
    assert files_with(bench, MARKER) == []
    lose_power(bench)
    bench.options = SEALING
    bench.reopen(clean=False)
    assert everything(bench.log) == sent


def test_a_key_table_that_is_damaged_while_the_log_is_open_is_written_again() -> None:
    bench = sealed_bench()
    put(bench, b"a")
    bench.flip(KEYS, 40)
    check = bench.log.file_check(TOPIC, None)
    assert check is not None

    damaged = check.work(bench.disk)
    assert damaged == [KEYS]
    check.finish(damaged)

    bench.reopen()
    assert values(bench.log) == [b"a"]


def test_encryption_is_switched_on_and_what_was_plain_is_still_read() -> None:
    bench = Bench(vault=vault_of())
    put(bench, b"plain")
    assert not bench.log.is_sealed

    bench.log.configure(SEALING)
    bench.rounds.finish_all()
    put(bench, MARKER)

    assert values(bench.log) == [b"plain", MARKER]
    assert files_with(bench, MARKER) == []
    bench.options = SEALING
    bench.reopen(clean=False)
    assert values(bench.log) == [b"plain", MARKER]


def test_encryption_is_switched_on_by_a_start() -> None:
    bench = Bench(vault=vault_of())
    put(bench, b"plain")

    bench.options = SEALING
    bench.reopen()
    put(bench, MARKER)

    assert values(bench.log) == [b"plain", MARKER]
    assert files_with(bench, MARKER) == []
    assert len(bench.segment_bases()) == 2


def test_encryption_is_switched_off_and_what_was_sealed_is_still_read() -> None:
    bench = sealed_bench()
    put(bench, b"a")

    bench.log.configure(OPTIONS)
    bench.rounds.finish_all()
    put(bench, b"b")

    assert values(bench.log) == [b"a", b"b"]
    (last,) = check_batches(bench.crashable.read(f"{DIRECTORY}/00000000000000000001.log"))
    assert not last.attributes & SEALED
    bench.options = OPTIONS
    bench.reopen(clean=False)
    assert values(bench.log) == [b"a", b"b"]


def test_a_switch_waits_for_the_table() -> None:
    bench = Bench(vault=vault_of())
    put(bench, b"plain")

    bench.log.configure(SEALING)
    put(bench, b"still plain")
    assert b"still plain" in bench.crashable.read(FIRST)
    lose_power(bench)
    bench.options = SEALING
    bench.reopen(clean=False)

    assert values(bench.log)[:1] in ([], [b"plain"])


def test_a_rotation_writes_the_table_under_the_new_master_key_and_no_records() -> None:
    vault = vault_of("old")
    bench = sealed_bench(vault)
    put(bench, b"a")
    records = bench.crashable.read(FIRST)

    vault.adopt(vault.service.rotate(7))
    bench.log.rewrap(bench.answers.append)
    bench.rounds.finish_all()

    assert bench.answers == [None]
    assert master_key_of(bench.crashable.read(f"{DIRECTORY}/{KEYS}")) == "of 7"
    assert bench.crashable.read(FIRST) == records
    bench.vault = vault_of("of 7")
    bench.reopen()
    assert values(bench.log) == [b"a"]


def resealed(bench: Bench) -> None:
    """Everything that is there, under new keys."""
    assert bench.log.keys is not None
    old = {row.key_id for row in bench.log.keys.table.rows}
    bench.log.renew_key()
    bench.checkpoint()
    for number, segment in enumerate(bench.log.sealed_under(old)):
        draft = bench.log.begin_reseal(f"t{number}", segment.base_offset)
        assert draft is not None
        while draft.next is not None:
            draft.copy(bench.disk)
        draft.seal(bench.disk)
        assert bench.log.finish_refill(draft)
        bench.rounds.finish_all()
    assert bench.log.sealed_under(old) == []


@pytest.mark.parametrize("was_plain", [False, True])
def test_resealing_brings_everything_under_new_keys(was_plain: bool) -> None:
    bench = Bench(options=OPTIONS if was_plain else SEALING, vault=vault_of())
    sent = b"".join(put(bench, MARKER + b"%d" % number) for number in range(20))
    bench.options = SEALING
    bench.reopen()
    assert bool(files_with(bench, MARKER)) is was_plain
    assert bench.log.keys is not None
    old = {row.key_id for row in bench.log.keys.table.rows}

    resealed(bench)

    assert everything(bench.log) == sent
    assert files_with(bench, MARKER) == []
    assert not old & {row.key_id for row in bench.log.keys.table.rows}
    assert not old & bench.log.keys.table.keys.keys()
    bench.reopen()
    assert everything(bench.log) == sent


def test_a_reseal_that_is_given_up_leaves_everything_as_it_was() -> None:
    bench = sealed_bench()
    put(bench, b"a")
    bench.log.renew_key()
    bench.checkpoint()
    assert bench.log.keys is not None
    rows = bench.log.keys.table.rows
    draft = bench.log.begin_reseal("t", Offset(0))
    assert draft is not None
    draft.copy(bench.disk)

    draft.abandon()
    draft.cancel(bench.disk)
    bench.rounds.finish_all()

    table = bench.log.keys.table
    assert (table.rows, table.candidates) == (rows, ())
    assert values(bench.log) == [b"a"]


def copies(bench: Bench) -> list[bytes]:
    """Batches that are in the quarantine, as they were sent, with the keys that are on disk."""
    assert bench.vault is not None
    vault = bench.vault.of(TOPIC, PartitionIndex(0))
    table = opened_table(vault, bench.crashable.read(f"{DIRECTORY}/{KEYS}"))
    found = []
    for name in sorted(bench.files(".cut")):
        content, position = memoryview(bench.crashable.read(f"{DIRECTORY}/{name}")), 0
        while position < len(content):
            header = read_header(content, position)
            end = position + header.size_bytes
            found.append(bytes(table.unseal_copy(content[position:end], header)))
            position = end
    return found


def test_what_was_kept_of_a_tail_is_readable_after_it_was_cut_and_whatever_comes_then() -> None:
    bench = sealed_bench()
    sent = [put(bench, MARKER + b"%d" % number) for number in range(12)]
    bench.sync_now()
    assert bench.log.tail_copy(Offset(3), 1 << 20).work(bench.disk).path is not None

    bench.log.truncate_to(Offset(3))

    assert copies(bench) == sent[3:]
    assert files_with(bench, MARKER) == []
    lose_power(bench)
    bench.reopen(clean=False)
    for number in range(12):
        put(bench, b"other %d" % number)
    resealed(bench)
    bench.log.truncate_to(Offset(1))
    assert copies(bench) == sent[3:]
    lose_power(bench)
    bench.reopen(clean=False)
    assert copies(bench) == sent[3:]
    bench.log.truncate_fully(Offset(100))
    assert copies(bench) == sent[3:]


def cut_with_a_copy(power_goes_at: int) -> tuple[Bench, list[bytes], bool]:
    """A log whose tail is copied and cut, unless the power goes before; it is started again."""
    bench, is_done = sealed_bench(), False
    sent = [put(bench, b"%d" % number) for number in range(8)]
    bench.checkpoint()
    bench.crashable.cut_power_at(power_goes_at)
    with suppress(PowerCut):
        bench.log.tail_copy(Offset(3), 1 << 20).work(bench.disk)
        bench.log.truncate_to(Offset(3))
        bench.rounds.finish_all()
        is_done = True
    bench.crashable.cut_power_at(None)
    lose_power(bench, seed=power_goes_at)
    bench.reopen(clean=False)
    return bench, sent, is_done


def test_no_operation_of_a_cut_is_a_bad_moment_for_its_copy() -> None:
    operation, is_done, whole = 0, False, 0
    while not is_done:
        operation += 1
        bench, sent, is_done = cut_with_a_copy(operation)
        with suppress(BatchIncomplete):
            # It may have been interrupted while it was made.
            found = copies(bench)
            whole += found == sent[3:]
            assert found == sent[3 : 3 + len(found)]
        assert b"".join(sent).startswith(everything(bench.log))

    assert operation > 10
    assert whole > 5


def test_keys_of_copies_go_when_the_quarantine_is_empty() -> None:
    bench = sealed_bench()
    for number in range(12):
        put(bench, b"%d" % number)
    bench.sync_now()
    bench.log.tail_copy(Offset(3), 1 << 20).work(bench.disk)
    bench.log.truncate_to(Offset(3))
    assert bench.log.keys is not None
    assert bench.log.keys.table.kept
    for name in bench.files(".cut"):
        bench.crashable.remove(f"{DIRECTORY}/{name}")

    bench.reopen()

    assert bench.log.keys is not None
    assert bench.log.keys.table.kept == ()
    stored = bench.crashable.read(f"{DIRECTORY}/{KEYS}")
    assert bench.vault is not None
    assert opened_table(bench.vault.of(TOPIC, PartitionIndex(0)), stored).kept == ()


def test_what_a_start_has_cut_off_is_readable_after_a_reseal() -> None:
    bench = sealed_bench(options=replace(SEALING, segment_bytes=100_000))
    sent = [put(bench, b"%d" % number) for number in range(4)]
    bench.sync_now()
    header = read_header(bench.crashable.read(FIRST))
    bench.crashable.flip_bit(FIRST, 8 * (header.size_bytes + 100))

    bench.reopen(clean=False)

    assert bench.report.cut is not None
    assert bench.report.cut.kept is not None
    bench.log.renew_key()
    resealed(bench)
    # The first one of them is what was damaged.
    kept = bench.crashable.read(bench.report.cut.kept)
    rest = memoryview(kept)[read_header(kept).size_bytes :]
    overwrite(bench, bench.report.cut.kept, bytes(rest))
    assert copies(bench) == sent[2:]


def test_the_key_of_a_damaged_range_that_was_filled_again_stays() -> None:
    bench, other = sealed_bench(), Bench()
    sent = [put(each, b"%d" % number) for number in range(20) for each in (bench, other)][::2]
    bench.checkpoint()
    bench.crashable.flip_bit(FIRST, 8 * 100)
    assert scrubbed(bench.log)
    assert bench.log.keys is not None
    first = bench.log.keys.table.id_at(0)
    draft = bench.log.begin_refill("token", may_have_gaps=False)
    assert draft is not None
    fill(bench, other, draft)

    resealed(bench)
    bench.reopen()

    assert bench.log.keys is not None
    table = bench.log.keys.table
    assert first in table.kept
    assert first in table.keys
    assert first not in {row.key_id for row in table.rows}
    assert everything(bench.log) == b"".join(sent)
