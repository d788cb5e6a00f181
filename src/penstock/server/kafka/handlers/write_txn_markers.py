"""WriteTxnMarkers: the end of transactions, from a coordinator or from an operator's tool."""

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
from penstock.server.kafka.response_rows import CLUSTER
from penstock.server.kafka.router import routes

INVALID = ApiError(ErrorKind.INVALID_REQUEST, "a marker has a producer id and an epoch")
UNKNOWN = ApiError(ErrorKind.UNKNOWN_PARTITION)


@routes.handles(WriteTxnMarkersRequest)
def write_txn_markers(request: WriteTxnMarkersRequest, call: Request) -> None:
    # Kafka's tools abort hanging transactions with the right to alter the cluster.
    if not (
        call.authorize(AclOperation.CLUSTER_ACTION, CLUSTER) or call.authorize(AclOperation.ALTER, CLUSTER)
    ):
        denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        _reply(call, request, [dict.fromkeys(_partitions(marker), denied) for marker in request.markers])
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

    def done(results: MarkerResults) -> None:
        codes = [
            errors
            | {name: ErrorCode.NONE if error is None else code_of(error) for name, error in result.items()}
            for errors, result in zip(refused, results, strict=True)
        ]
        _reply(call, request, codes)

    call.backend.markers.write(known, done)


def _partitions(marker: WriteTxnMarkersRequestMarker) -> list[TopicPartition]:
    return [
        TopicPartition(TopicName(topic.name), PartitionIndex(index))
        for topic in marker.topics
        for index in topic.partition_indexes
    ]


def _reply(
    call: Request, request: WriteTxnMarkersRequest, codes: list[dict[TopicPartition, ErrorCode]]
) -> None:
    call.reply(
        WriteTxnMarkersResponse(
            markers=tuple(
                WriteTxnMarkersResponseMarker(
                    producer_id=marker.producer_id,
                    topics=tuple(
                        WriteTxnMarkersResponseTopic(
                            name=topic.name,
                            partitions=tuple(
                                WriteTxnMarkersResponsePartition(
                                    partition_index=index,
                                    error_code=results[
                                        TopicPartition(TopicName(topic.name), PartitionIndex(index))
                                    ],
                                )
                                for index in topic.partition_indexes
                            ),
                        )
                        for topic in marker.topics
                    ),
                )
                for marker, results in zip(request.markers, codes, strict=True)
            )
        )
    )
