"""Random records, as wide as the format allows."""

from hypothesis import strategies as st

from penstock.core.records import Record

_blobs = st.none() | st.binary(max_size=40) | st.integers(60, 9_000).map(lambda n: b"ab" * n)
_headers = st.lists(st.tuples(st.text(max_size=12), st.none() | st.binary(max_size=20)), max_size=4).map(
    tuple
)

timestamps = st.integers(-1, 2**62) | st.integers(1_700_000_000_000, 1_700_000_100_000)
records = st.builds(Record, st.just(0), timestamps, _blobs, _blobs, _headers)
record_lists = st.lists(records, min_size=1, max_size=20)


def numbered(given: list[Record], base_offset: int = 0) -> list[Record]:
    return [record._replace(offset=base_offset + index) for index, record in enumerate(given)]
