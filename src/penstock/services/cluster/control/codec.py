"""Bytes of the control channel."""

import struct
from typing import Any, NamedTuple, get_args

import msgspec

from penstock.core.metadata import Command, Reply
from penstock.core.model import ProtocolError
from penstock.services.cluster.control.messages import MESSAGES, Message

VERSION = 1
_HEAD = struct.Struct("<BBBQ")
_NUMBERS = {kind: number for number, kind in enumerate(MESSAGES)}
_COMMANDS: dict[str, type[Any]] = {kind.__name__: kind for kind in get_args(Command)}
_REPLIES: dict[str, type[Any]] = {kind.__name__: kind for kind in get_args(Reply)}
_decoders: dict[type[Any], msgspec.msgpack.Decoder[Any]] = {}
_encode = msgspec.msgpack.Encoder().encode


class Parcel(NamedTuple):
    """A message, and the question that it is or answers."""

    is_answer: bool
    number: int
    message: Message


def encode_parcel(parcel: Parcel) -> bytes:
    kind = _NUMBERS[type(parcel.message)]
    return _HEAD.pack(VERSION, parcel.is_answer, kind, parcel.number) + _encode(parcel.message)


def decode_parcel(frame: memoryview) -> Parcel:
    """The parcel, or ProtocolError."""
    if len(frame) < _HEAD.size:
        raise ProtocolError("a control frame without its head")
    version, is_answer, kind, number = _HEAD.unpack_from(frame)
    if version != VERSION or kind >= len(MESSAGES):
        raise ProtocolError(f"a control frame of version {version}, kind {kind}")
    return Parcel(bool(is_answer), number, _decode(MESSAGES[kind], frame[_HEAD.size :]))


def encode_command(command: Command) -> tuple[str, bytes]:
    return type(command).__name__, _encode(command)


def decode_command(name: str, content: bytes) -> Command:
    """The command, or ProtocolError: a newer node may know commands that we do not."""
    command: Command = _decode(_named(_COMMANDS, name), content)
    return command


def encode_reply(reply: Reply) -> tuple[str, bytes]:
    return type(reply).__name__, _encode(reply)


def decode_reply(name: str, content: bytes) -> Reply:
    """The reply, or ProtocolError."""
    reply: Reply = _decode(_named(_REPLIES, name), content)
    return reply


def _named(kinds: dict[str, type[Any]], name: str) -> type[Any]:
    kind = kinds.get(name)
    if kind is None:
        raise ProtocolError(f"{name} is not known here")
    return kind


def _decode(kind: type[Any], content: bytes | memoryview) -> Any:
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.msgpack.Decoder(kind)
    try:
        return decoder.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError) as wrong:
        raise ProtocolError(f"a damaged {kind.__name__}: {wrong}") from None
