"""The examples in docs/formats/replication-frames.md are true."""

import re
from pathlib import Path
from uuid import UUID

from penstock.broker.replication.protocol import (
    RangeFetch,
    RangeFetchResponse,
    ReplicaFetch,
    ReplicaFetchPartition,
    ReplicaFetchResponse,
    ReplicaFetchResponsePartition,
    ReplicaFetchStatus,
    decode,
    encode_fetch,
    encode_range_fetch,
    encode_range_response,
    encode_response,
    key_of,
)
from penstock.core.model import TopicId

PAGE = Path(__file__).parents[4] / "docs" / "formats" / "replication-frames.md"
FIRST_COLUMN = re.compile(r"^((?:[0-9a-f]{2} )*[0-9a-f]{2})(?:  |$)", re.MULTILINE)
KEY = key_of(TopicId(UUID("0190163d-8694-739b-aea5-966c26f8ad91")), 3)


def example(heading: str, number: int = 0) -> bytes:
    section = PAGE.read_text().split(f"## {heading}\n")[1]
    block = section.split("```")[1 + 2 * number]
    return bytes.fromhex(" ".join(FIRST_COLUMN.findall(block)))


def test_the_fetch_of_the_page_reads_as_the_page_says() -> None:
    fetch = ReplicaFetch(9, 2, 0, [ReplicaFetchPartition(KEY, 5, 1_000, 4, 996, 12)], [])

    shown = example("Worked example: a fetch")

    assert decode(memoryview(shown)) == fetch
    assert encode_fetch(fetch) == shown


def test_the_answer_of_the_page_reads_as_the_page_says() -> None:
    row = ReplicaFetchResponsePartition(KEY, ReplicaFetchStatus.DIVERGED, 5, 1_000, 990, 0, 3, 992)

    shown = example("Worked example: an answer")
    answer = decode(memoryview(shown))

    assert isinstance(answer, ReplicaFetchResponse)
    assert [(found, bytes(content)) for found, content in answer.rows] == [(row, b"")]
    assert b"".join(encode_response(2, 0, 0, [row], [b""])) == shown


def test_the_range_of_the_page_reads_as_the_page_says() -> None:
    fetch = RangeFetch(KEY, 7, 1_000, 1_005)
    response = RangeFetchResponse(KEY, 7, ReplicaFetchStatus.DAMAGED, 0, b"")

    asked, answered = (example("Worked example: a range", number) for number in range(2))

    assert decode(memoryview(asked)) == fetch
    assert encode_range_fetch(fetch) == asked
    assert decode(memoryview(answered)) == response
    assert b"".join(encode_range_response(response)) == answered


def test_the_page_has_every_status() -> None:
    page = PAGE.read_text()

    for status in ReplicaFetchStatus:
        assert f"| {status.value} {status.name.lower().replace('_', ' ')} |" in page
