"""Bytes of the control channel: every command and reply survives, and nonsense is refused."""

from dataclasses import fields
from typing import Any, get_args
from uuid import UUID

import pytest

from penstock.broker.cluster.rpc import (
    MESSAGES,
    ReadIndexReply,
    RequestReadIndex,
    RpcFrame,
    decode_command,
    decode_frame,
    decode_reply,
    encode_command,
    encode_frame,
    encode_reply,
)
from penstock.core.metadata import (
    BrokerEndpoint,
    Command,
    ConfigChange,
    ConfigOperation,
    ConfigResource,
    ConfigResourceType,
    CreateTopic,
    FeatureRange,
    IncrementalAlterConfigs,
    RegisterBroker,
    ReplicaAssignment,
    Reply,
)
from penstock.core.model import ApiError, ErrorKind, NodeId, Offset, PartitionIndex, ProtocolError, TopicId

COMMANDS = get_args(Command)
REPLIES = get_args(Reply)


def test_a_command_arrives_as_it_was_sent() -> None:
    command = CreateTopic(
        "orders",
        TopicId(UUID(int=7)),
        assignments=(ReplicaAssignment(PartitionIndex(0), (NodeId(1), NodeId(2))),),
        configs=(("retention.ms", "5"), ("cleanup.policy", None)),
    )

    assert decode_command(*encode_command(command)) == command


def test_nested_values_arrive_as_they_were_sent() -> None:
    register = RegisterBroker(
        "AAAA", NodeId(3), UUID(int=9), (BrokerEndpoint("PEER", "h", 1),), features=(FeatureRange("f", 1, 2),)
    )
    resource = ConfigResource(ConfigResourceType.TOPIC, "orders")
    alter = IncrementalAlterConfigs(resource, (ConfigChange(ConfigOperation.APPEND, "k", "v"),))

    assert decode_command(*encode_command(register)) == register
    assert decode_command(*encode_command(alter)) == alter


@pytest.mark.parametrize("kind", COMMANDS, ids=lambda kind: kind.__name__)
def test_every_command_can_be_read_or_is_refused_politely(kind: type[Any]) -> None:
    required = [field.name for field in fields(kind) if field.default is field.default_factory]

    try:
        command = decode_command(kind.__name__, b"\x80")
    except ProtocolError:
        assert required
    else:
        assert command == kind()


@pytest.mark.parametrize("kind", REPLIES, ids=lambda kind: kind.__name__)
def test_every_reply_is_known_by_name(kind: type[Any]) -> None:
    with pytest.raises(ProtocolError, match="damaged"):
        decode_reply(kind.__name__, b"\xc1")


def test_a_refusal_arrives_with_its_reason() -> None:
    refusal = ApiError(ErrorKind.UNKNOWN_TOPIC, "no such thing", (1, 2))

    assert decode_reply(*encode_reply(refusal)) == refusal


def test_an_rpc_frame_keeps_its_number_and_its_direction() -> None:
    question, answer = (
        RpcFrame(False, 7, RequestReadIndex()),
        RpcFrame(True, 2**63, ReadIndexReply(Offset(9))),
    )

    assert decode_frame(memoryview(encode_frame(question))) == question
    assert decode_frame(memoryview(encode_frame(answer))) == answer


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\x01\x00\x00",
        b"\x02" + encode_frame(RpcFrame(False, 1, RequestReadIndex()))[1:],
        b"\x01\x00" + bytes([len(MESSAGES)]) + bytes(8) + b"\x80",
        b"\x01\x00\x00" + bytes(8) + b"\xc1",
        b"\x01\x00\x00" + bytes(8) + b"\x81\xa1x\x01",
        # A field name, and a host, that are not UTF-8.
        b"\x01\x00\x00" + bytes(8) + b"\x81\xa1\xff\x01",
        b"\x01\x00\x00" + bytes(8) + b"\x81\xa7address\x92\xa1\xff\x01",
    ],
)
def test_nonsense_is_refused(frame: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_frame(memoryview(frame))


def test_commands_that_are_not_known_are_refused_by_name() -> None:
    with pytest.raises(ProtocolError, match="unknown command or reply: FlyToTheMoon"):
        decode_command("FlyToTheMoon", b"\x80")
