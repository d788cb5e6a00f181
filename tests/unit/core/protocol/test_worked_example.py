"""The examples in docs/formats/kafka-messages.md are true."""

import re
from pathlib import Path

from penstock.core.protocol.frames import RequestHeader, read_request_header, request_frame
from penstock.core.protocol.messages import api
from penstock.core.protocol.messages.fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic
from penstock.core.protocol.state_records import OFFSETS_KEYS, OffsetCommitKey, read_key, write_stored

PAGE = Path(__file__).parents[4] / "docs" / "formats" / "kafka-messages.md"
FIRST_COLUMN = re.compile(r"^((?:[0-9a-f]{2} )*[0-9a-f]{2})(?:  |$)", re.MULTILINE)


def example(heading: str) -> bytes:
    section = PAGE.read_text().split(f"## {heading}\n")[1]
    block = section.split("```")[1]
    return bytes.fromhex(" ".join(FIRST_COLUMN.findall(block)))


def test_the_request_of_the_page_reads_as_the_page_says() -> None:
    partition = FetchRequestPartition(partition=3, fetch_offset=100, partition_max_bytes=1 << 20)
    request = FetchRequest(
        cluster_id="c1",
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=50 << 20,
        topics=(FetchRequestTopic(topic="orders", partitions=(partition,)),),
    )

    shown = example("Worked example")
    header, position = read_request_header(shown[4:])

    assert header == RequestHeader(1, 12, 42, "app")
    assert FetchRequest.decode(shown[4:], 12, position) == request
    assert request_frame(api(1), header, request) == shown


def test_the_key_of_the_page_reads_as_the_page_says() -> None:
    key = OffsetCommitKey(group="g1", topic="orders", partition=3)

    shown = example("Messages inside records")

    assert read_key(OFFSETS_KEYS, shown) == key
    assert write_stored(key, 1) == shown
