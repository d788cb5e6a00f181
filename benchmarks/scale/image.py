"""The metadata alone: memory, facts, snapshot, replay."""

import gc
import tracemalloc

from benchmarks.scale.shape import Journal, Shape, cpu_ms
from penstock.core.metadata import EMPTY_IMAGE, decode_fact, encode_fact, replay, snapshot


def run(shape: Shape) -> dict[str, float]:
    journal = Journal()
    registering_ms, _ = cpu_ms(lambda: journal.register(shape))
    creating_ms, _ = cpu_ms(lambda: journal.create(shape))
    image = journal.machine.image
    partitions = image.partition_count
    encoding_ms, lines = cpu_ms(lambda: [encode_fact(fact) for fact in journal.facts], 3)
    decoding_ms, facts = cpu_ms(lambda: [decode_fact(line) for line in lines], 3)
    replaying_ms, _ = cpu_ms(lambda: replay(EMPTY_IMAGE, facts), 3)
    snapshot_ms, kept = cpu_ms(lambda: [encode_fact(fact) for fact in snapshot(image)], 3)
    return {
        "brokers_registered_ms": registering_ms,
        "topics_created_ms": creating_ms,
        "created_us_per_partition": creating_ms * 1_000 / partitions,
        "facts": float(len(lines)),
        "facts_mb": sum(map(len, lines)) / 1e6,
        "facts_encoded_ms": encoding_ms,
        "facts_decoded_ms": decoding_ms,
        "facts_replayed_ms": replaying_ms,
        "replayed_facts_per_s": len(lines) / (decoding_ms + replaying_ms) * 1_000,
        "snapshot_mb": sum(map(len, kept)) / 1e6,
        "snapshot_ms": snapshot_ms,
        "image_mb": _memory_mb(kept),
    }


def _memory_mb(lines: list[bytes]) -> float:
    """What an image holds that was read from a snapshot, as every node's is."""
    gc.collect()
    tracemalloc.start()
    try:
        image = replay(EMPTY_IMAGE, map(decode_fact, lines))
        gc.collect()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert image.partition_count
    return held / 1e6
