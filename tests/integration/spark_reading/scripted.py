"""A broker of one partition whose log, and whose whims, are written down in the test."""

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Any
from uuid import UUID

from penstock.core.protocol import APIS, ErrorCode, Message, read_request_header, response_frame
from penstock.core.protocol.messages.api_versions import ApiVersionsResponse, ApiVersionsResponseApi
from penstock.core.protocol.messages.fetch import (
    FetchRequest,
    FetchResponse,
    FetchResponseAbortedTransaction,
    FetchResponsePartition,
    FetchResponseTopic,
)
from penstock.core.protocol.messages.list_offsets import (
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsResponsePartition,
    ListOffsetsResponseTopic,
)
from penstock.core.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from penstock.core.records import read_header

TOPIC = "scripted"
PRODUCE, FETCH, LIST_OFFSETS, METADATA, API_VERSIONS = 0, 1, 2, 3, 18
# Nobody produces here, but librdkafka reads no batches from a broker that could not be sent any.
SERVED = {PRODUCE: (3, 9), FETCH: (4, 16), LIST_OFFSETS: (1, 7), METADATA: (1, 12), API_VERSIONS: (0, 3)}
EARLIEST = -2

# Answers a Fetch in its own way; None closes the connection.
Whim = Callable[[FetchRequest], "FetchResponse | bytes | None"]


class ScriptedBroker:
    """Serves `batches`; each whim is used up by one Fetch, in order, before the log is served."""

    def __init__(self, batches: list[bytearray], *, fetch_version_max: int = 16) -> None:
        self.batches = batches
        self.log_start = 0
        self.high_watermark = read_header(batches[-1]).next_offset if batches else 0
        self.last_stable_offset: int | None = None
        self.aborted: list[tuple[int, int]] = []
        self.topic_id = UUID(int=7)
        self.topic_error = ErrorCode.NONE
        self.whims: list[Whim] = []
        self.answer_batches_max = 1000
        # Who leads the partition, if it is another broker.
        self.leader: ScriptedBroker | None = None
        self._fetch_version_max = fetch_version_max
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._connections: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def close(self) -> None:
        for one in (self._listener, *self._connections):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        for thread in self._threads:
            thread.join(10)

    def _start(self, run: Callable[..., None], *arguments: Any) -> None:
        thread = threading.Thread(target=run, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            self._start(self._serve, connection)

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as stream:
            try:
                while size := stream.read(4):
                    answer = self._answer(stream.read(int.from_bytes(size, "big")))
                    if answer is None:
                        return
                    connection.sendall(answer)
            except OSError:
                return

    def _answer(self, frame: bytes) -> bytes | None:
        header, position = read_request_header(frame)
        about = APIS[header.api_key]
        version = header.api_version
        if header.api_key == API_VERSIONS:
            version = min(version, SERVED[API_VERSIONS][1])
            answer: Message | bytes | None = self._versions()
        elif header.api_key == METADATA:
            answer = self._metadata()
        elif header.api_key == LIST_OFFSETS:
            answer = self._listed(about.request.decode(frame, version, position))
        else:
            assert header.api_key == FETCH, header
            answer = self._fetched(about.request.decode(frame, version, position))
        if answer is None or isinstance(answer, bytes):
            return answer
        return bytes(response_frame(about, version, header.correlation_id, answer))

    def _versions(self) -> ApiVersionsResponse:
        served = {**SERVED, FETCH: (4, self._fetch_version_max)}
        return ApiVersionsResponse(
            error_code=0,
            api_keys=tuple(
                ApiVersionsResponseApi(api_key=key, min_version=low, max_version=high)
                for key, (low, high) in served.items()
            ),
            throttle_time_ms=0,
        )

    def _metadata(self) -> MetadataResponse:
        host, port = (self.leader or self)._listener.getsockname()
        partition = MetadataResponsePartition(
            error_code=0, partition_index=0, leader_id=1, leader_epoch=0, replica_nodes=(1,), isr_nodes=(1,)
        )
        topic = MetadataResponseTopic(
            error_code=self.topic_error, name=TOPIC, topic_id=self.topic_id, partitions=(partition,)
        )
        broker = MetadataResponseBroker(node_id=1, host=host, port=port)
        return MetadataResponse(brokers=(broker,), cluster_id="c", controller_id=1, topics=(topic,))

    def _listed(self, request: Any) -> ListOffsetsResponse:
        assert isinstance(request, ListOffsetsRequest)
        asked = request.topics[0].partitions[0].timestamp
        offset = self.log_start if asked == EARLIEST else self.high_watermark
        found = ListOffsetsResponsePartition(partition_index=0, error_code=0, offset=offset, leader_epoch=0)
        return ListOffsetsResponse(topics=(ListOffsetsResponseTopic(name=TOPIC, partitions=(found,)),))

    def _fetched(self, request: Any) -> "FetchResponse | bytes | None":
        assert isinstance(request, FetchRequest)
        return self.whims.pop(0)(request) if self.whims else self.from_log(request)

    def from_log(self, request: FetchRequest) -> FetchResponse | bytes | None:
        """What the log has at the place that was asked for."""
        if not request.topics:
            return fetched(())
        position = request.topics[0].partitions[0].fetch_offset
        if not self.log_start <= position <= self.high_watermark:
            return refusing(ErrorCode.OFFSET_OUT_OF_RANGE)(request)
        stable = self.high_watermark if self.last_stable_offset is None else self.last_stable_offset
        limit = stable if request.isolation_level else self.high_watermark
        ahead = [batch for batch in self.batches if position < read_header(batch).next_offset <= limit]
        partition = FetchResponsePartition(
            partition_index=0,
            error_code=0,
            high_watermark=self.high_watermark,
            last_stable_offset=stable,
            log_start_offset=self.log_start,
            aborted_transactions=tuple(
                FetchResponseAbortedTransaction(producer_id=producer, first_offset=first)
                for producer, first in self.aborted
            )
            if request.isolation_level
            else None,
            records=memoryview(b"".join(ahead[: self.answer_batches_max])),
        )
        return fetched((topic_of(request, partition),))


def fetched(topics: tuple[FetchResponseTopic, ...], throttle_ms: int = 0) -> FetchResponse:
    return FetchResponse(throttle_time_ms=throttle_ms, responses=topics)


def topic_of(request: FetchRequest, partition: FetchResponsePartition) -> FetchResponseTopic:
    asked = request.topics[0]
    return FetchResponseTopic(topic_id=asked.topic_id, topic=asked.topic, partitions=(partition,))


def refusing(code: ErrorCode) -> Whim:
    """Answer with an error."""

    def whim(request: FetchRequest) -> FetchResponse:
        partition = FetchResponsePartition(
            partition_index=0,
            error_code=code,
            high_watermark=-1,
            aborted_transactions=None,
            records=memoryview(b""),
        )
        return fetched((topic_of(request, partition),))

    return whim
