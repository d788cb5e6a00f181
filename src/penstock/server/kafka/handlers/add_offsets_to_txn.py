"""AddOffsetsToTxn: bringing a group's positions into a transaction.

The partition of the offsets topic that keeps them becomes part of the transaction.
"""

from functools import partial

from penstock.broker.coordinator import KEY_CHARS_MAX, partition_of
from penstock.core.metadata import OFFSETS_TOPIC
from penstock.core.model import (
    ApiError,
    ErrorKind,
    NodeId,
    PartitionIndex,
    ProducerEpoch,
    ProducerId,
    TopicName,
    TopicPartition,
)
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from penstock.core.transactions import AddPartitions, ProducerIdentity, Reply
from penstock.security import AclOperation
from penstock.server.kafka.errors import transaction_code
from penstock.server.kafka.request import Request
from penstock.server.kafka.response_rows import may, may_use_id
from penstock.server.kafka.router import routes

FENCED_SINCE = 2


@routes.handles(AddOffsetsToTxnRequest)
def add_offsets_to_txn(request: AddOffsetsToTxnRequest, call: Request) -> None:
    if not may_use_id(call, AclOperation.WRITE, request.transactional_id):
        _answer(call, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    elif not may(call, AclOperation.READ, request.group_id):
        _answer(call, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    else:
        # The offsets topic is created, if this is the first time that it is needed.
        call.backend.groups.locate(request.group_id, partial(_add, request, call))


def _add(request: AddOffsetsToTxnRequest, call: Request, located: NodeId | ApiError) -> None:
    topic = call.backend.controller.image.topic(OFFSETS_TOPIC)
    if topic is None or len(request.group_id) > KEY_CHARS_MAX:
        _reply(
            call, located if isinstance(located, ApiError) else ApiError(ErrorKind.COORDINATOR_NOT_AVAILABLE)
        )
        return
    index = PartitionIndex(partition_of(request.group_id, len(topic.partitions)))
    call.backend.transactions.submit(
        AddPartitions(
            on_reply=partial(_reply, call),
            transactional_id=request.transactional_id,
            producer=ProducerIdentity(ProducerId(request.producer_id), ProducerEpoch(request.producer_epoch)),
            partitions=(TopicPartition(TopicName(OFFSETS_TOPIC), index),),
        )
    )


def _reply(call: Request, reply: Reply) -> None:
    _answer(call, transaction_code(reply, knows_fenced=call.version >= FENCED_SINCE))


def _answer(call: Request, code: ErrorCode) -> None:
    call.reply(AddOffsetsToTxnResponse(throttle_time_ms=call.charge_time(), error_code=code))
