"""Damaged facts are recognised, or at least are facts."""

import contextlib

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.metadata import EMPTY_IMAGE, apply, decode_fact, encode_fact, snapshot
from penstock.core.model import CorruptionError
from tests.property.metadata.metadata_worlds import running_cluster

WHOLE = [encode_fact(fact) for fact in snapshot(running_cluster().image)]


@given(
    st.sampled_from(WHOLE),
    st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=4),
    st.data(),
)
@settings(max_examples=400, deadline=None)
def test_damaged_bytes_are_corruption_or_a_fact_that_applies(
    whole: bytes, damage: list[tuple[int, int]], data: st.DataObject
) -> None:
    content = bytearray(whole)
    for place, byte in damage:
        content[place % len(content)] = byte
    end = data.draw(st.integers(0, len(content)))

    with contextlib.suppress(CorruptionError):
        apply(EMPTY_IMAGE, decode_fact(content[:end]))


@given(st.binary(max_size=200))
@settings(max_examples=200, deadline=None)
def test_random_bytes_are_corruption_or_a_fact_that_applies(content: bytes) -> None:
    with contextlib.suppress(CorruptionError):
        apply(EMPTY_IMAGE, decode_fact(b"\x01" + content))
