"""Keys and values as bytes: the `Serde` protocol, and those that most programs need.

    BytesSerde       bytes as they are; str as UTF-8 when it is sent
    StringSerde      str, UTF-8 by default
    JsonSerde        JSON, of any shape or of one type (dataclass, msgspec.Struct, TypedDict)
    MsgpackSerde     MessagePack, likewise
    AvroSerde        Avro's binary form with one schema (`pip install 'penstock[avro]'`)
    ProtobufSerde    one generated message class (`pip install 'penstock[protobuf]'`)
    serde            two functions

None stands for no key, or a tombstone, and passes all of them by. An error names the record:
topic, partition and offset, where it has them.

Left out: schema registries, and schemas that change: Avro bytes carry no mark of their writer.
"""

from collections.abc import Callable
from io import BytesIO
from typing import Any, Generic, Protocol, TypeVar, overload, runtime_checkable

import msgspec

from penstock.client.endpoint import ClientError
from penstock.client.message import Message, RawMessage

T = TypeVar("T")


@runtime_checkable
class Serde(Protocol[T]):
    """Both directions. Whatever `encode` and `decode` raise becomes SerializationFailed."""

    def encode(self, value: T) -> bytes: ...

    def decode(self, data: bytes) -> T: ...


class SerializationFailed(ClientError):
    """A value that has no bytes, or bytes that hold no such value.

    `message` is the record as it was read, in bytes; None where a record was to be sent.
    """

    def __init__(self, text: str, message: RawMessage | None = None) -> None:
        super().__init__(text)
        self.message = message


class BytesSerde:
    """Bytes as they are."""

    def encode(self, value: bytes | bytearray | memoryview | str) -> bytes:
        if isinstance(value, str):
            return value.encode()
        # Not bytes(value): of a number that would be as many zeros.
        return value if isinstance(value, bytes) else bytes(memoryview(value))

    def decode(self, data: bytes) -> bytes:
        return data


class StringSerde:
    """Text."""

    def __init__(self, encoding: str = "utf-8") -> None:
        self._encoding = encoding

    def encode(self, value: str) -> bytes:
        return value.encode(self._encoding)

    def decode(self, data: bytes) -> str:
        return data.decode(self._encoding)


class JsonSerde(Generic[T]):
    """JSON; with a type, only values of that type are read."""

    @overload
    def __init__(self: "JsonSerde[Any]", kind: None = None) -> None: ...

    @overload
    def __init__(self, kind: type[T]) -> None: ...

    def __init__(self, kind: type[T] | None = None) -> None:
        self._encode = msgspec.json.Encoder().encode
        decoder: Any = msgspec.json.Decoder(Any if kind is None else kind)
        self._decode: Callable[[bytes], T] = decoder.decode

    def encode(self, value: T) -> bytes:
        return self._encode(value)

    def decode(self, data: bytes) -> T:
        return self._decode(data)


class MsgpackSerde(Generic[T]):
    """MessagePack; with a type, only values of that type are read."""

    @overload
    def __init__(self: "MsgpackSerde[Any]", kind: None = None) -> None: ...

    @overload
    def __init__(self, kind: type[T]) -> None: ...

    def __init__(self, kind: type[T] | None = None) -> None:
        self._encode = msgspec.msgpack.Encoder().encode
        decoder: Any = msgspec.msgpack.Decoder(Any if kind is None else kind)
        self._decode: Callable[[bytes], T] = decoder.decode

    def encode(self, value: T) -> bytes:
        return self._encode(value)

    def decode(self, data: bytes) -> T:
        return self._decode(data)


class AvroSerde:
    """Avro's binary form, without a header: everybody who reads must have the schema."""

    def __init__(self, schema: dict[str, Any] | list[Any] | str) -> None:
        try:
            import fastavro
        except ImportError:
            raise ClientError("Avro needs fastavro: pip install 'penstock[avro]'") from None
        self._fastavro = fastavro
        self._schema: Any = fastavro.parse_schema(_parsed(schema))

    def encode(self, value: Any) -> bytes:
        buffer = BytesIO()
        self._fastavro.schemaless_writer(buffer, self._schema, value)
        return buffer.getvalue()

    def decode(self, data: bytes) -> Any:
        buffer = BytesIO(data)
        value = self._fastavro.schemaless_reader(buffer, self._schema, None)
        if rest := len(data) - buffer.tell():
            raise ValueError(f"{rest} bytes follow the value")
        return value


class ProtobufMessage(Protocol):
    """What a generated message class has."""

    def SerializeToString(self) -> bytes: ...  # noqa: N802

    def ParseFromString(self, serialized: bytes) -> Any: ...  # noqa: N802


M = TypeVar("M", bound=ProtobufMessage)


class ProtobufSerde(Generic[M]):
    """Messages of one generated class."""

    def __init__(self, kind: type[M]) -> None:
        self._kind = kind

    def encode(self, value: M) -> bytes:
        if not isinstance(value, self._kind):
            raise TypeError(f"a {type(value).__name__} is no {self._kind.__name__}")
        return value.SerializeToString()

    def decode(self, data: bytes) -> M:
        value = self._kind()
        value.ParseFromString(data)
        return value


class _FunctionSerde(Generic[T]):
    def __init__(self, encode: Callable[[T], bytes], decode: Callable[[bytes], T]) -> None:
        self.encode = encode
        self.decode = decode


def serde(encode: Callable[[T], bytes], decode: Callable[[bytes], T]) -> Serde[T]:
    """Two functions as a Serde."""
    return _FunctionSerde(encode, decode)


def encode_part(part: str, topic: str, serializer: Serde[Any], value: Any) -> bytes | None:
    """A key or a value of a record for `topic`."""
    if value is None:
        return None
    try:
        return serializer.encode(value)
    except Exception as error:
        raise SerializationFailed(f"{topic}: a {part} cannot be written: {_first_line(error)}") from error


def decode_message(
    message: RawMessage, keys: Serde[Any] | None, values: Serde[Any] | None
) -> Message[Any, Any]:
    """The message with its key and value as objects."""
    if keys is None and values is None:
        return message
    part = "key"
    try:
        key = message.key if keys is None or message.key is None else keys.decode(message.key)
        part = "value"
        value = message.value if values is None or message.value is None else values.decode(message.value)
    except Exception as error:
        raise SerializationFailed(
            f"{message.id}: its {part} cannot be read: {_first_line(error)}", message
        ) from error
    return message._replace(key=key, value=value)


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).partition("\n")[0]


def _parsed(schema: dict[str, Any] | list[Any] | str) -> Any:
    # A bare name such as "string" is a schema too.
    if isinstance(schema, str) and schema.lstrip()[:1] in ("{", "[", '"'):
        return msgspec.json.decode(schema)
    return schema
