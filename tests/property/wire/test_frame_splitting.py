"""However a stream is cut on its way, the frames come out as they went in."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.wire.frames import FrameSplitter


@given(st.lists(st.binary(max_size=40)), st.lists(st.integers(1, 60)))
def test_cuts_do_not_matter(bodies: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(len(body).to_bytes(4, "big") + body for body in bodies)
    splitter = FrameSplitter(40)
    received: list[bytes] = []

    for cut in cuts:
        received += map(bytes, splitter.feed(stream[:cut]))
        stream = stream[cut:]
    received += map(bytes, splitter.feed(stream))

    assert received == bodies
    assert splitter.pending_bytes == 0
