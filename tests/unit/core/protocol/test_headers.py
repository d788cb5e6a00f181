"""What stands before a message, and whole frames."""

import pytest

from penstock.core.model import ProtocolError
from penstock.core.protocol.frames import (
    RequestHeader,
    read_request_header,
    read_request_header_v0,
    read_response_header,
    request_frame,
    response_frame,
    response_pieces,
)
from penstock.core.protocol.messages import api
from penstock.core.protocol.messages.api_versions import ApiVersionsResponse
from penstock.core.protocol.messages.fetch import FetchResponse, FetchResponsePartition, FetchResponseTopic
from penstock.core.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

HEARTBEAT = api(12)
API_VERSIONS = api(18)
FETCH = api(1)
BEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


class FileRange:
    """Records that are not in memory."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size


@pytest.mark.parametrize("version", [0, 3, 4])
@pytest.mark.parametrize("client_id", ["console", "", None])
def test_a_request_frame_reads_back(version: int, client_id: str | None) -> None:
    header = RequestHeader(12, version, 77, client_id)

    frame = request_frame(HEARTBEAT, header, BEAT)
    read, position = read_request_header(frame[4:])

    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert read == header
    assert HeartbeatRequest.decode(bytes(frame[4:]), version, position) == BEAT


def test_only_flexible_requests_have_tags_behind_the_client_id() -> None:
    plain, position = read_request_header(bytes.fromhex("000c 0003 0000004d 0001 63"))
    flexible, flexible_position = read_request_header(
        bytes.fromhex("000c 0004 0000004d 0001 63 01 09 02 aaaa")
    )

    assert (plain.client_id, position) == ("c", 11)
    assert (flexible.client_id, flexible_position) == ("c", 16)


def test_a_version_from_the_future_still_has_a_header() -> None:
    header, _ = read_request_header(bytes.fromhex("0012 7fff 00000001 ffff 00"))

    assert header == RequestHeader(18, 32767, 1, None)


def test_the_oldest_header_names_no_client() -> None:
    header, position = read_request_header_v0(bytes.fromhex("0007 0000 00000005"))

    assert header == RequestHeader(7, 0, 5, None)
    assert position == 8


@pytest.mark.parametrize(
    "frame",
    [
        "",
        "0012",
        "0012 0003 00000001",
        "0012 0003 00000001 0005 61",
        "0012 0003 00000001 fffe 00",
        "0012 0003 00000001 0001 ff 00",
        "0012 0003 00000001 ffff",
        "0012 0003 00000001 ffff 01 00 7f",
    ],
)
def test_a_broken_request_header_is_refused(frame: str) -> None:
    with pytest.raises(ProtocolError):
        read_request_header(bytes.fromhex(frame))


@pytest.mark.parametrize("frame", ["", "0000", "00000001", "00000001 01", "00000001 01 00 05"])
def test_a_broken_response_header_is_refused(frame: str) -> None:
    with pytest.raises(ProtocolError):
        read_response_header(HEARTBEAT, 4, bytes.fromhex(frame))


def test_the_answer_to_api_versions_never_has_header_tags() -> None:
    answer = ApiVersionsResponse(error_code=35, api_keys=())

    frame = response_frame(API_VERSIONS, 3, 9, answer)
    correlation_id, position = read_response_header(API_VERSIONS, 3, frame[4:])

    assert (correlation_id, position) == (9, 4)
    assert frame.hex(" ") == "00 00 00 0c 00 00 00 09 00 23 01 00 00 00 00 00"


def test_other_flexible_answers_do() -> None:
    frame = response_frame(HEARTBEAT, 4, 9, HeartbeatResponse(error_code=27))

    assert frame.hex(" ") == "00 00 00 0c 00 00 00 09 00 00 00 00 00 00 1b 00"
    assert read_response_header(HEARTBEAT, 4, frame[4:]) == (9, 5)


def fetched(*records: bytes | FileRange | None) -> FetchResponse:
    partitions = tuple(
        FetchResponsePartition(
            partition_index=index, error_code=0, high_watermark=9, aborted_transactions=None, records=held
        )
        for index, held in enumerate(records)
    )
    topics = (FetchResponseTopic(topic="t", partitions=partitions),)
    return FetchResponse(throttle_time_ms=0, responses=topics)


@pytest.mark.parametrize("version", range(4, 13))
def test_a_response_in_pieces_is_the_response_cut_around_its_records(version: int) -> None:
    answer = fetched(b"first", None, b"", b"x" * 300)

    pieces = response_pieces(FETCH, version, 5, answer)

    assert b"".join(bytes(piece) for piece in pieces if isinstance(piece, bytes | bytearray)) == bytes(
        response_frame(FETCH, version, 5, answer)
    )
    assert pieces[1] == b"first"
    assert pieces[3] == b"x" * 300
    assert len(pieces) == 5


def test_records_in_a_file_are_counted_and_left_alone() -> None:
    elsewhere = FileRange(1_000_000)

    start, records, rest = response_pieces(FETCH, 12, 5, fetched(elsewhere))

    assert records is elsewhere
    assert isinstance(start, bytearray)
    assert int.from_bytes(start[:4], "big") == len(start) + 1_000_000 + len(rest) - 4


def test_a_response_beyond_two_gigabytes_is_refused() -> None:
    with pytest.raises(ProtocolError):
        response_pieces(FETCH, 4, 5, fetched(FileRange(2**31 - 10)))
