"""WriteTxnMarkers: the end of transactions, from a coordinator or from an operator's tool."""

from collections.abc import Iterator

from penstock.broker.transactions.markers import MarkerResults, TransactionMarker
from penstock.core.model import ApiError, ErrorKind, PartitionIndex, TopicName, TopicPartition
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.write_txn_markers import (
    WriteTxnMarkersRequest,
    WriteTxnMarkersRequestMarker,
    WriteTxnMarkersResponse,
    WriteTxnMarkersResponseMarker,
    WriteTxnMarkersResponsePartition,
    WriteTxnMarkersResponseTopic,
)
from penstock.security import AclOperation
from penstock.server.kafka.errors import code_of
from penstock.server.kafka.request import Request
from penstock.server.kafka.response_rows import CLUSTER, collected
from penstock.server.kafka.router import routes

INVALID = ApiError(ErrorKind.INVALID_REQUEST, "a marker has a producer id and an epoch")
UNKNOWN = ApiError(ErrorKind.UNKNOWN_PARTITION)


@routes.handles(WriteTxnMarkersRequest)
def write_txn_markers(request: WriteTxnMarkersRequest, call: Request) -> Iterator[None]:
    # Kafka's tools abort hanging transactions with the right to alter the cluster.
    allowed = call.permits(AclOperation.CLUSTER_ACTION, CLUSTER) or call.permits(AclOperation.ALTER, CLUSTER)
    if not call.decide(AclOperation.ALTER, CLUSTER, allowed=allowed):
        yield from _reply(
            call, request, [{} for _ in request.markers], ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        )
        return
    image = call.backend.controller.image
    known: list[TransactionMarker] = []
    refused: list[dict[TopicPartition, ErrorCode]] = []
    for marker in request.markers:
        is_valid = marker.producer_id >= 0 and marker.producer_epoch >= 0
        errors: dict[TopicPartition, ErrorCode] = {}
        partitions: list[TopicPartition] = []
        for partition in _partitions(marker):
            if not is_valid:
                errors[partition] = code_of(INVALID)
            elif image.partition(*partition) is None:
                errors[partition] = code_of(UNKNOWN)
            else:
                partitions.append(partition)
            yield
        refused.append(errors)
        known.append(
            TransactionMarker(
                marker.producer_id,
                marker.producer_epoch,
                marker.coordinator_epoch,
                marker.transaction_result,
                marker.transaction_version,
                tuple(partitions),
            )
        )
        yield

    def done(results: MarkerResults) -> None:
        call.run(_answer(call, request, refused, results))

    call.backend.markers.write(known, done)


def _answer(
    call: Request,
    request: WriteTxnMarkersRequest,
    codes: list[dict[TopicPartition, ErrorCode]],
    results: MarkerResults,
) -> Iterator[None]:
    for errors, result in zip(codes, results, strict=True):
        for name, error in result.items():
            errors[name] = ErrorCode.NONE if error is None else code_of(error)
            yield
    yield from _reply(call, request, codes)


def _partitions(marker: WriteTxnMarkersRequestMarker) -> Iterator[TopicPartition]:
    for topic in marker.topics:
        for index in topic.partition_indexes:
            yield TopicPartition(TopicName(topic.name), PartitionIndex(index))


def _reply(
    call: Request,
    request: WriteTxnMarkersRequest,
    codes: list[dict[TopicPartition, ErrorCode]],
    otherwise: ErrorCode = ErrorCode.NONE,
) -> Iterator[None]:
    markers: list[WriteTxnMarkersResponseMarker] = []
    for marker, results in zip(request.markers, codes, strict=True):
        topics: list[WriteTxnMarkersResponseTopic] = []
        for topic in marker.topics:
            name = TopicName(topic.name)
            rows = yield from collected(
                WriteTxnMarkersResponsePartition(
                    partition_index=index,
                    error_code=results.get(TopicPartition(name, PartitionIndex(index)), otherwise),
                )
                for index in topic.partition_indexes
            )
            topics.append(WriteTxnMarkersResponseTopic(name=topic.name, partitions=rows))
            yield
        markers.append(WriteTxnMarkersResponseMarker(producer_id=marker.producer_id, topics=tuple(topics)))
        yield
    call.reply(WriteTxnMarkersResponse(markers=tuple(markers)))
