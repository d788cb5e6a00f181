"""Commands of coordinators and their replies as MessagePack, for coordinators on other nodes.

A command is written as a map of its fields without `on_reply`, which each node has its own of; so fields that
a node does not know are skipped, and those that are missing have their defaults.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, get_args, get_type_hints

import msgspec

from penstock.core.delays import ClientDelayCommand, DelayReply
from penstock.core.model import ProtocolError
from penstock.core.queues import QueueCommand, QueueReply
from penstock.core.transactions import EndTransaction, InitProducer, Reply

_encode = msgspec.msgpack.Encoder().encode
_messages: dict[type[Any], type[msgspec.Struct]] = {}
_decoders: dict[type[Any], msgspec.msgpack.Decoder[Any]] = {}
# What nodes ask transaction coordinators for themselves.
NodeTransaction = InitProducer | EndTransaction


def _flat(union: Any) -> dict[str, type[Any]]:
    return {kind.__name__: kind for kind in get_args(union)}


_COMMANDS = {**_flat(QueueCommand), **_flat(NodeTransaction), **_flat(ClientDelayCommand)}
_REPLIES = {**_flat(QueueReply), **_flat(Reply), **_flat(DelayReply)}


def _message(kind: type[Any]) -> type[msgspec.Struct]:
    """The struct that a command is sent as, made when it is first needed."""
    made = _messages.get(kind)
    if made is None:
        made = _messages[kind] = _make_message(kind)
    return made


def _make_message(kind: type[Any]) -> type[msgspec.Struct]:
    hints = get_type_hints(kind)
    fields: list[Any] = []
    for field in dataclasses.fields(kind):
        if field.name != "on_reply":
            named = (field.name, hints[field.name])
            fields.append(named if field.default is dataclasses.MISSING else (*named, field.default))
    return msgspec.defstruct(kind.__name__, fields, frozen=True, kw_only=True)


def encode_command(command: Any) -> tuple[str, bytes]:
    """The name and the bytes of the command, or ProtocolError."""
    kind = type(command)
    message = _message(kind)
    fields = {name: getattr(command, name) for name in message.__struct_fields__}
    try:
        return kind.__name__, _encode(message(**fields))
    except (OverflowError, UnicodeEncodeError) as error:
        raise ProtocolError(f"a {kind.__name__} that cannot be sent: {error}") from None


def decode_command(name: str, content: bytes, on_reply: Callable[[Any], None]) -> Any:
    """The command, or ProtocolError."""
    kind = _named(_COMMANDS, name)
    message = _decode(_message(kind), content)
    fields = {each: getattr(message, each) for each in message.__struct_fields__}
    return kind(on_reply=on_reply, **fields)


def encode_reply(reply: Any) -> tuple[str, bytes]:
    return type(reply).__name__, _encode(reply)


def decode_reply(name: str, content: bytes) -> Any:
    """The reply, or ProtocolError."""
    return _decode(_named(_REPLIES, name), content)


def _named(kinds: dict[str, type[Any]], name: str) -> type[Any]:
    kind = kinds.get(name)
    if kind is None:
        raise ProtocolError(f"there is no command or reply {name!r} of a coordinator")
    return kind


def _decode(kind: type[Any], content: bytes) -> Any:
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.msgpack.Decoder(kind)
    try:
        return decoder.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ProtocolError(f"a damaged {kind.__name__}: {error}") from None
