"""Files of a log directory: segments, indexes, snapshots, checkpoints, leader epochs.

Every file carries a CRC, so random damage hardly ever gets past it. Each parser is
therefore also run behind the CRC: the damaged payload is framed anew, as a bug or a
hostile hand would leave it.
"""

import random
from array import array
from collections.abc import Callable
from functools import cache, partial
from uuid import UUID

from fuzz.harness import Target
from fuzz.targets.records import random_records
from penstock.core.model import (
    CorruptionError,
    LeaderEpoch,
    Offset,
    PartitionIndex,
    ProducerEpoch,
    ProducerId,
    Timestamp,
    TopicId,
)
from penstock.core.records import check_batches, write_batch
from penstock.core.replica import (
    BatchMetadata,
    EpochStart,
    LeaderEpochHistory,
    OpenTransactions,
    ProducerState,
    ProducerStateManager,
    decode_snapshot,
    encode_snapshot,
)
from penstock.storage.disk import CrashableDisk
from penstock.storage.journal.codec import (
    BATCHES,
    FileHeader,
    JournalState,
    common_epoch,
    decode_state,
    encode_file_header,
    encode_frame,
    encode_state,
    log_key,
    pack_durable,
    pack_entry,
)
from penstock.storage.journal.recovery import JournalScan
from penstock.storage.log import LogOptions, PartitionLog
from penstock.storage.log.files import (
    Checkpoint,
    FileKind,
    IndexMark,
    SealedSegment,
    decode_checkpoint,
    decode_epochs,
    decode_identity,
    encode_checkpoint,
    encode_epochs,
    encode_identity,
    frame,
    unframe,
)
from penstock.storage.log.index import (
    FOOTER_BYTES,
    SHAPES,
    IndexRowFormat,
    encode_words,
    footer,
    parse_sealed,
)

TOPIC = TopicId(UUID(int=1))
DIRECTORY = "log"
OPTIONS = LogOptions(segment_bytes=4096, index_interval_bytes=64, time_index_interval_ms=1)
FRAME_BYTES = 16
SEGMENT = "00000000000000000000"


def a_snapshot(rng: random.Random) -> bytes:
    producers: dict[ProducerId, ProducerState] = {}
    for number in range(rng.randint(0, 3)):
        producer = ProducerState(ProducerEpoch(rng.randrange(2**15)))
        producer.seen_at = Timestamp(rng.randrange(2**41))
        for sequence in range(rng.randint(0, 5)):
            producer.batches.append(
                BatchMetadata(sequence, sequence, Offset(sequence), Offset(sequence), Timestamp(5))
            )
        producers[ProducerId(number)] = producer
    ongoing = [(ProducerId(n), Offset(n)) for n in range(rng.randint(0, 2))]
    return encode_snapshot(ProducerStateManager(producers, OpenTransactions(ongoing)))


def a_checkpoint(rng: random.Random) -> bytes:
    bases = sorted(rng.sample(range(1000), rng.randint(1, 4)))
    sealed = tuple(SealedSegment(Offset(base), rng.randrange(2**31), gapless=True) for base in bases[:-1])
    return encode_checkpoint(
        Checkpoint(
            recovery_point=Offset(bases[-1] + 5),
            segment=Offset(bases[-1]),
            position=rng.randrange(2**31),
            log_start=Offset(bases[0]),
            high_watermark=Offset(bases[-1]),
            marks=(IndexMark(1, 2), IndexMark(3, 4), IndexMark(0, 0)),
            sealed=sealed,
            producers=a_snapshot(rng),
        )
    )


def some_epochs(rng: random.Random) -> bytes:
    rows = [EpochStart(LeaderEpoch(3 * n), Offset(10 * n)) for n in range(rng.randint(0, 5))]
    return encode_epochs(LeaderEpochHistory(rows))


def an_identity(rng: random.Random) -> bytes:
    return encode_identity(TopicId(UUID(bytes=rng.randbytes(16))))


def a_sealed_index(shape: IndexRowFormat, rng: random.Random) -> bytes:
    words = array(shape.code, sorted(rng.randrange(2**40) for _ in range(shape.words * rng.randint(0, 9))))
    rows = encode_words(words)
    return rows + footer(shape, rows)


def framed_anew(kind: FileKind, decode: Callable[[bytes], object]) -> Callable[[bytes], object]:
    """Run a decoder on a payload that some damage got into before the frame was closed."""
    return lambda data: decode(frame(kind, data[FRAME_BYTES:]))


@cache
def a_life() -> CrashableDisk:
    """A log of three segments that was stopped cleanly."""
    rng = random.Random(1)
    disk = CrashableDisk()
    log = PartitionLog.create(disk, DIRECTORY, TOPIC, OPTIONS)
    for number in range(3):
        for _ in range(rng.randint(1, 4)):
            batch = write_batch(random_records(rng, 2), producer_id=5, producer_epoch=number, base_sequence=0)
            log.append(batch, check_batches(batch), LeaderEpoch(number), Timestamp(number))
        if number < 2:
            log.roll()
    log.close()
    return disk


def a_segment(rng: random.Random) -> bytes:
    """The batches of a log that has but one segment."""
    disk = CrashableDisk()
    log = PartitionLog.create(disk, DIRECTORY, TOPIC)
    for number in range(rng.randint(1, 5)):
        batch = write_batch(random_records(rng, rng.randint(1, 3)))
        log.append(batch, check_batches(batch), LeaderEpoch(number), Timestamp(number))
    return log.read(Offset(0), 1 << 20).to_bytes()


def recover(content: bytes) -> None:
    """Open a log whose only segment is `content`, nothing of it checkpointed, and read it all."""
    disk = CrashableDisk()
    PartitionLog.create(disk, DIRECTORY, TOPIC, OPTIONS)
    disk.open(f"{DIRECTORY}/{SEGMENT}.log").append(content)
    log, report = PartitionLog.open(disk, DIRECTORY, TOPIC, OPTIONS)
    assert report.corruption == ()
    assert report.bytes_read <= len(content)
    read_all(log)
    PartitionLog.open(disk, DIRECTORY, TOPIC, OPTIONS)


def read_all(log: PartitionLog) -> None:
    offset = log.start
    while offset < log.end:
        content = log.read(offset, 1 << 16).to_bytes()
        offset = Offset(check_batches(content)[-1].next_offset)
    log.offset_for_timestamp(Timestamp(1))


def replace_file(suffix: str, data: bytes) -> None:
    """Open a good log one of whose files holds `data` instead: refused, or rebuilt and right."""
    disk = a_life().copy()
    bases = [name for name in disk.listdir(DIRECTORY) if name.endswith(suffix)]
    file = disk.open(f"{DIRECTORY}/{bases[0]}", create=True)
    file.truncate(0)
    file.append(data)
    log, _ = PartitionLog.open(disk, DIRECTORY, TOPIC, OPTIONS)
    read_all(log)


def file_of_a_life(suffix: str, _: random.Random) -> bytes:
    disk = a_life()
    name = next(name for name in disk.listdir(DIRECTORY) if name.endswith(suffix))
    file = disk.open(f"{DIRECTORY}/{name}")
    return file.pread(0, file.size())


def resealed_index(shape: IndexRowFormat, data: bytes) -> object:
    rows = data[: len(data) - FOOTER_BYTES]
    return parse_sealed(shape, rows + footer(shape, rows))


def small_files() -> list[Target]:
    kinds: list[tuple[str, FileKind, Callable[[random.Random], bytes], Callable[[bytes], object]]] = [
        ("identity", FileKind.IDENTITY, an_identity, decode_identity),
        ("epochs", FileKind.EPOCHS, some_epochs, decode_epochs),
        ("checkpoint", FileKind.CHECKPOINT, a_checkpoint, decode_checkpoint),
        (
            "snapshot",
            FileKind.SNAPSHOT,
            lambda rng: frame(FileKind.SNAPSHOT, a_snapshot(rng)),
            lambda data: decode_snapshot(unframe(FileKind.SNAPSHOT, data)),
        ),
    ]
    targets = []
    for name, kind, seed, decode in kinds:
        targets.append(Target(f"storage.{name}", seed, decode, (CorruptionError,)))
        targets.append(
            Target(f"storage.{name}.behind-the-crc", seed, framed_anew(kind, decode), (CorruptionError,))
        )
    return targets


def index_files() -> list[Target]:
    targets = []
    for shape in SHAPES:
        seed = partial(a_sealed_index, shape)
        parse = partial(parse_sealed, shape)
        resealed = partial(resealed_index, shape)
        targets.append(Target(f"storage.{shape.suffix}", seed, parse, (CorruptionError,)))
        targets.append(Target(f"storage.{shape.suffix}.behind-the-crc", seed, resealed, (CorruptionError,)))
    return targets


def whole_logs() -> list[Target]:
    """A recovered or refused log is the only thing that may come out."""
    suffixes = ("log", "index", "timeindex", "txnindex", "snapshot", "checkpoint", "leader-epochs")
    # A disk in memory, its copies of every file, and a log on top of it: some 100 kB of their own.
    return [
        Target("storage.segment.tail", a_segment, recover, (), 512),
        *(
            Target(
                f"storage.log-with-bad.{suffix}",
                partial(file_of_a_life, suffix),
                partial(replace_file, suffix),
                (CorruptionError,),
                512,
            )
            for suffix in suffixes
        ),
    ]


def some_entries(rng: random.Random) -> bytes:
    """The payload of a frame."""
    parts = []
    for number in range(rng.randint(1, 3)):
        key, start = log_key(TOPIC, PartitionIndex(number)), Offset(rng.randint(0, 9))
        batch = bytes(write_batch(random_records(rng, 1)))
        parts += [pack_entry(BATCHES, key, start, start + 1, common_epoch([batch]), len(batch)), batch]
    parts.append(pack_durable(log_key(TOPIC, PartitionIndex(9)), Offset(5)))
    return b"".join(parts)


def a_journal_file(rng: random.Random) -> bytes:
    """A journal file with some frames, and room behind them."""
    content = bytearray(encode_file_header(FileHeader(5, 0, 0, 77)))
    for sequence in range(5, 5 + rng.randint(1, 5)):
        content += encode_frame(sequence, [some_entries(rng)], 77)
    return bytes(content + bytes(200))


def read_journal(data: bytes) -> None:
    """Read a journal file, and whatever it says about its logs."""
    scan = JournalScan()
    try:
        scan.read(1, data)
    finally:
        scan.finish(1000)
        for key in scan.logs():
            known = scan.recover(key, 0)
            assert all(found.position + found.length <= len(data) for found in known.ranges)


def journal_files() -> list[Target]:
    def reframed(data: bytes) -> None:
        read_journal(encode_file_header(FileHeader(5, 0, 0, 77)) + encode_frame(5, [data], 77))

    def state(rng: random.Random) -> bytes:
        return encode_state(JournalState(rng.randrange(2**63), 3, 1, rng.randrange(9), closed=False))

    return [
        Target("storage.journal", a_journal_file, read_journal, (CorruptionError,)),
        Target("storage.journal.behind-the-crc", some_entries, reframed, (CorruptionError,)),
        Target("storage.journal.state", state, decode_state, (CorruptionError,)),
    ]


TARGETS = (*small_files(), *index_files(), *whole_logs(), *journal_files())
