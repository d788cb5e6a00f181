"""AddPartitionsToTxn: bringing partitions into a transaction, or asking whether they are in it.

Up to version 3 clients send it, with one transaction and all or nothing; from version 4 on brokers do, for
several transactions (KIP-890).
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TypeAlias

from penstock.core.metadata import is_internal
from penstock.core.model import (
    PartitionIndex,
    ProducerEpoch,
    ProducerId,
    TopicName,
    TopicPartition,
)
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnRequestTopic,
    AddPartitionsToTxnRequestTransaction,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResponsePartition,
    AddPartitionsToTxnResponseTopic,
    AddPartitionsToTxnResponseTransaction,
)
from penstock.core.transactions import (
    EPOCH_PER_TRANSACTION,
    PARTITIONS_MAX,
    AddPartitions,
    PartitionResults,
    ProducerIdentity,
    Reply,
    VerifyPartitions,
)
from penstock.security import AclOperation
from penstock.server.kafka.errors import CODES, transaction_code
from penstock.server.kafka.request import Request
from penstock.server.kafka.response_rows import CLUSTER, ResponseRows, by_topic, may_use_id, topic_resource
from penstock.server.kafka.router import routes

FENCED_SINCE = 2
BATCHES_SINCE = 4
# Brokers of the version before know another code for a partition that is not part of the transaction.
ABORTABLE_SINCE = 5
Partitions: TypeAlias = tuple[TopicPartition, ...]
Topics: TypeAlias = tuple[AddPartitionsToTxnResponseTopic, ...]
Row = AddPartitionsToTxnResponseTransaction


@routes.handles(AddPartitionsToTxnRequest)
def add_partitions_to_txn(request: AddPartitionsToTxnRequest, call: Request) -> Iterator[None]:
    if call.version < BATCHES_SINCE:
        yield from _add(request, call)
    elif not call.authorize(AclOperation.CLUSTER_ACTION, CLUSTER):
        call.reply(
            AddPartitionsToTxnResponse(
                throttle_time_ms=call.charge_time(), error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            )
        )
    elif sum(map(_count, [each.topics for each in request.transactions])) > PARTITIONS_MAX:
        call.reply(
            AddPartitionsToTxnResponse(
                throttle_time_ms=call.charge_time(), error_code=ErrorCode.INVALID_REQUEST
            )
        )
    else:
        rows: ResponseRows[Row] = ResponseRows(
            len(request.transactions),
            lambda done: call.reply(
                AddPartitionsToTxnResponse(throttle_time_ms=call.charge_time(), results_by_transaction=done)
            ),
        )
        for index, transaction in enumerate(request.transactions):
            yield from _ask(transaction, call, rows, index)
            yield
        rows.end()


def _add(request: AddPartitionsToTxnRequest, call: Request) -> Iterator[None]:
    """The form of clients: if one partition cannot be added, none is."""
    is_too_long = _count(request.v3_and_below_topics) > PARTITIONS_MAX
    # There is no error for a request as a whole: as many partitions get theirs as one may name.
    partitions = tuple(islice(_partitions_of(request.v3_and_below_topics), PARTITIONS_MAX))

    def answer(codes: Mapping[TopicPartition, ErrorCode]) -> None:
        call.reply(
            AddPartitionsToTxnResponse(
                throttle_time_ms=call.charge_time(),
                results_by_topic_v3_and_below=_topics(partitions, codes),
            )
        )

    if not may_use_id(call, AclOperation.WRITE, request.v3_and_below_transactional_id):
        answer(dict.fromkeys(partitions, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
        return
    if is_too_long:
        answer(dict.fromkeys(partitions, ErrorCode.INVALID_REQUEST))
        return
    problems: dict[TopicPartition, ErrorCode] = {}
    for partition in partitions:
        problems[partition] = _problem_with(call, partition)
        yield
    if any(problems.values()):
        answer(_none_attempted(problems))
        return
    producer_id, epoch = request.v3_and_below_producer_id, request.v3_and_below_producer_epoch
    call.backend.transactions.submit(
        AddPartitions(
            on_reply=lambda reply: answer(_codes(call, partitions, reply)),
            transactional_id=request.v3_and_below_transactional_id,
            producer=ProducerIdentity(ProducerId(producer_id), ProducerEpoch(epoch)),
            partitions=partitions,
        )
    )


def _ask(
    transaction: AddPartitionsToTxnRequestTransaction, call: Request, rows: ResponseRows[Row], index: int
) -> Iterator[None]:
    """The form of brokers, whose offsets topic takes part too."""
    partitions = tuple(_partitions_of(transaction.topics))

    def answer(codes: Mapping[TopicPartition, ErrorCode]) -> None:
        topics = _topics(partitions, codes)
        rows.put(index, Row(transactional_id=transaction.transactional_id, topic_results=topics))

    def replied(reply: Reply) -> None:
        answer(_codes(call, partitions, reply))

    problems: dict[TopicPartition, ErrorCode] = {}
    for partition in partitions:
        problems[partition] = _unknown(call, partition)
        yield
    if any(problems.values()):
        answer(_none_attempted(problems))
        return
    producer = ProducerIdentity(
        ProducerId(transaction.producer_id), ProducerEpoch(transaction.producer_epoch)
    )
    call.backend.transactions.submit(
        VerifyPartitions(
            on_reply=replied,
            transactional_id=transaction.transactional_id,
            producer=producer,
            partitions=partitions,
        )
        if transaction.verify_only
        else AddPartitions(
            on_reply=replied,
            transactional_id=transaction.transactional_id,
            producer=producer,
            partitions=partitions,
            client_version=EPOCH_PER_TRANSACTION,
        )
    )


def _count(topics: Sequence[AddPartitionsToTxnRequestTopic]) -> int:
    return sum([len(topic.partitions) for topic in topics])


def _partitions_of(topics: Sequence[AddPartitionsToTxnRequestTopic]) -> Iterator[TopicPartition]:
    for topic in topics:
        for index in topic.partitions:
            yield TopicPartition(TopicName(topic.name), PartitionIndex(index))


def _problem_with(call: Request, partition: TopicPartition) -> ErrorCode:
    allowed = call.authorize(AclOperation.WRITE, topic_resource(partition.topic))
    if not allowed or is_internal(partition.topic):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return _unknown(call, partition)


def _unknown(call: Request, partition: TopicPartition) -> ErrorCode:
    known = call.backend.controller.image.partition(*partition) is not None
    return ErrorCode.NONE if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _none_attempted(problems: Mapping[TopicPartition, ErrorCode]) -> dict[TopicPartition, ErrorCode]:
    """All or nothing: where one partition has an error, the others are not added."""
    return {part: code or ErrorCode.OPERATION_NOT_ATTEMPTED for part, code in problems.items()}


def _codes(call: Request, partitions: Partitions, reply: Reply) -> dict[TopicPartition, ErrorCode]:
    if not isinstance(reply, PartitionResults):
        return dict.fromkeys(partitions, transaction_code(reply, knows_fenced=call.version >= FENCED_SINCE))
    codes = {part: ErrorCode.NONE if kind is None else CODES[kind] for part, kind in reply.partitions}
    if call.version < ABORTABLE_SINCE:
        return {
            part: ErrorCode.INVALID_TXN_STATE if code is ErrorCode.TRANSACTION_ABORTABLE else code
            for part, code in codes.items()
        }
    return codes


def _topics(partitions: Partitions, codes: Mapping[TopicPartition, ErrorCode]) -> Topics:
    rows = by_topic(
        (
            part.topic,
            AddPartitionsToTxnResponsePartition(
                partition_index=part.partition, partition_error_code=codes[part]
            ),
        )
        for part in partitions
    )
    return tuple(
        AddPartitionsToTxnResponseTopic(name=name, results_by_partition=results) for name, results in rows
    )
