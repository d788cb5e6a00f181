"""Commands of coordinators as bytes: each arrives as it was sent, and nonsense is refused."""

import dataclasses
from typing import Any
from uuid import UUID

import pytest

from penstock.broker.queues.command_codec import (
    decode_command,
    decode_reply,
    encode_command,
    encode_reply,
)
from penstock.core.model import (
    ApiError,
    ErrorKind,
    LeaderEpoch,
    Offset,
    PartitionIndex,
    ProducerEpoch,
    ProducerId,
    ProtocolError,
    Timestamp,
    TopicId,
)
from penstock.core.queues import (
    AcknowledgeRecords,
    AcquireRecords,
    ClaimResults,
    DeadLetter,
    DeadLettersFound,
    Demand,
    Failure,
    LeaseClaim,
    LeasedRun,
    OfferRecords,
    OpenQueue,
    QueueDescription,
    QueueId,
    QueueOk,
    QueueRecord,
    QueueSettings,
    QueueStored,
    RecordsAcquired,
    ReleaseConsumer,
    ReleaseRecords,
    Run,
    TransactionProducer,
)
from penstock.core.transactions import EndTransaction, ProducerGranted, ProducerIdentity

QUEUE = QueueId("workers", TopicId(UUID(int=7)), PartitionIndex(3))
PRODUCER = TransactionProducer(ProducerId(5), ProducerEpoch(1))


def heard(_: Any) -> None:
    """The callback of the node that decides."""


def test_a_number_that_has_too_many_bits_is_an_error_of_the_command() -> None:
    record = QueueRecord(Offset(4), expires_at=Timestamp(2**64))
    offer = OfferRecords(
        on_reply=heard,
        queue=QUEUE,
        leader_epoch=LeaderEpoch(1),
        start=Offset(4),
        end=Offset(5),
        records=(record,),
    )

    with pytest.raises(ProtocolError, match="cannot be sent"):
        encode_command(offer)


COMMANDS = [
    OpenQueue(
        on_reply=heard,
        queue=QUEUE,
        leader_epoch=LeaderEpoch(4),
        settings=QueueSettings(is_key_ordered=True),
        log_start=Offset(1),
        log_end=Offset(9),
        start=Offset(1),
    ),
    OfferRecords(
        on_reply=heard,
        queue=QUEUE,
        leader_epoch=LeaderEpoch(4),
        start=Offset(0),
        end=Offset(9),
        plain=(Run(Offset(0), Offset(4)),),
        records=(QueueRecord(Offset(7), -(2**63), 9, Timestamp(5), Timestamp(6)),),
    ),
    AcquireRecords(
        on_reply=heard,
        queue=QUEUE,
        leader_epoch=LeaderEpoch(4),
        consumer="c",
        records_max=2,
        token=2**63 - 1,
    ),
    AcknowledgeRecords(on_reply=heard, queue=QUEUE, claims=(LeaseClaim(Offset(1), 2, 3),), producer=PRODUCER),
    ReleaseRecords(on_reply=heard, queue=QUEUE, claims=(LeaseClaim(Offset(1)),), consumer="c", delay_ms=0),
    ReleaseConsumer(on_reply=heard, queue=QUEUE, consumer="c", tokens=(2**63 - 1, 0)),
    EndTransaction(
        on_reply=heard,
        transactional_id="t",
        producer=ProducerIdentity(ProducerId(5), ProducerEpoch(1)),
        is_commit=True,
    ),
]
STORED = QueueStored(QUEUE, Offset(9), LeaderEpoch(4), QueueSettings(), is_paused=True)
REPLIES = [
    QueueOk(),
    RecordsAcquired(1, 2, (LeasedRun(Offset(3), Offset(5), 4),), Demand(Offset(5), 6), is_paused=True),
    ClaimResults((None, ErrorKind.INVALID_RECORD_STATE)),
    DeadLettersFound((DeadLetter(Offset(1), 4, Failure(Timestamp(1), Timestamp(2), "why")),)),
    QueueDescription(STORED, Offset(1), 2, 3, 4, 5, 6),
    ApiError(ErrorKind.NOT_COORDINATOR, "elsewhere"),
    ProducerGranted(ProducerIdentity(ProducerId(5), ProducerEpoch(1))),
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: type(command).__name__)
def test_a_command_arrives_as_it_was_sent_with_the_callback_of_the_receiver(command: Any) -> None:
    def here(_: Any) -> None:
        """Another one."""

    arrived = decode_command(*encode_command(command), here)

    assert arrived.on_reply is here
    assert dataclasses.replace(arrived, on_reply=heard) == command


@pytest.mark.parametrize("reply", REPLIES, ids=lambda reply: type(reply).__name__)
def test_a_reply_arrives_as_it_was_sent(reply: Any) -> None:
    assert decode_reply(*encode_reply(reply)) == reply


@pytest.mark.parametrize(
    ("name", "content"), [("Other", b"\x80"), ("AcquireRecords", b"\x80"), ("AcquireRecords", b"\xc1")]
)
def test_what_is_no_command_is_refused(name: str, content: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_command(name, content, heard)
    with pytest.raises(ProtocolError):
        decode_reply(name, content)
