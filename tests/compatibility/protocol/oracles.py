"""Our messages as kio and kafka-python would build them, field by field and by name."""

import dataclasses
import datetime as dt
import importlib
import io
from typing import Any, Protocol
from uuid import UUID

import kafka.protocol.admin
import kafka.protocol.consumer
import kafka.protocol.metadata
import kafka.protocol.producer
import kafka.protocol.sasl
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.schema.index import schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType
from kio.static.primitive import i32Timedelta, i64Timedelta

from penstock.core.protocol.codec import Message
from penstock.core.protocol.messages import Api
from penstock.core.protocol.schema import Part

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class Oracle(Protocol):
    """Somebody else's codec."""

    def versions(self, api: Api, kind: str) -> set[int]: ...

    def encode(self, api: Api, kind: str, version: int, ours: Message) -> bytes: ...

    def reencode(self, api: Api, kind: str, version: int, encoded: bytes) -> bytes:
        """Decode and encode again: equal bytes mean that the oracle understood all of them."""
        ...


class Kio:
    """The typed codec of the kio package."""

    def versions(self, api: Api, kind: str) -> set[int]:
        return {v for v in schema_name_map.get(api.module, {}) if self._entity(api, kind, v) is not None}

    def encode(self, api: Api, kind: str, version: int, ours: Message) -> bytes:
        entity = self._entity(api, kind, version)
        out = io.BytesIO()
        entity_writer(entity)(out, to_kio(entity, ours))
        return out.getvalue()

    def reencode(self, api: Api, kind: str, version: int, encoded: bytes) -> bytes:
        entity = self._entity(api, kind, version)
        read, size = entity_reader(entity)(encoded, 0)
        assert size == len(encoded)
        out = io.BytesIO()
        entity_writer(entity)(out, read)
        return out.getvalue()

    @staticmethod
    def _entity(api: Api, kind: str, version: int) -> Any:
        entities = schema_name_map[api.module][version]
        path = entities.get(EntityType.request) if kind == "Request" else entities.get(EntityType.response)
        if path is None:
            return None
        module, name = path.split(":")
        return getattr(importlib.import_module(module), name)


def to_kio(entity: Any, ours: Part) -> Any:
    return entity(**{field.name: _kio_value(field, ours) for field in dataclasses.fields(entity)})


def _kio_value(field: Any, ours: Part) -> Any:
    kind = field.metadata.get("kafka_type", "")
    name = _our_name(field, ours)
    if kind.startswith(("timedelta", "datetime")):
        name += "_ms"
    value = getattr(ours, name)
    nested = _nested_entity(field.type)
    if isinstance(value, tuple):
        return tuple(to_kio(nested, item) if nested else _kio_plain(kind, item) for item in value)
    if isinstance(value, Part):
        return to_kio(nested, value)
    return _kio_plain(kind, value)


def _kio_plain(kind: str, value: Any) -> Any:
    if isinstance(value, UUID) and value.int == 0:
        return None
    match kind:
        case "timedelta_i32":
            return i32Timedelta.parse(dt.timedelta(milliseconds=value))
        case "timedelta_i64":
            return i64Timedelta.parse(dt.timedelta(milliseconds=value))
        case "datetime_i64":
            return None if value == -1 else _EPOCH + dt.timedelta(milliseconds=value)
        case "error_code":
            return KioErrorCode(value)
        case _:
            return value


def _nested_entity(annotation: Any) -> Any:
    if dataclasses.is_dataclass(annotation):
        return annotation
    for argument in getattr(annotation, "__args__", ()):
        found = _nested_entity(argument)
        if found is not None:
            return found
    return None


class KafkaPython:
    """The codec of the kafka-python package."""

    _packages = (
        kafka.protocol.admin,
        kafka.protocol.consumer,
        kafka.protocol.metadata,
        kafka.protocol.producer,
        kafka.protocol.sasl,
    )

    def versions(self, api: Api, kind: str) -> set[int]:
        found = self._class(api, kind)
        if found is None:
            return set()
        # Its tables begin where Kafka 4.0 does, but its codec still speaks what came before.
        return set(range(found.min_version, found.max_version + 1))

    def encode(self, api: Api, kind: str, version: int, ours: Message) -> bytes:
        theirs = _to_kafka_python(self._class(api, kind), version, ours)
        return bytes(theirs.encode(version=version))

    def reencode(self, api: Api, kind: str, version: int, encoded: bytes) -> bytes:
        read = self._class(api, kind).decode(encoded, version=version)
        read._header = None  # its encoder looks at the header, its decoder leaves it unset
        return bytes(read.encode(version=version))

    def _class(self, api: Api, kind: str) -> Any:
        for package in self._packages:
            found = getattr(package, api.name + kind, None)
            if found is not None:
                return found
        return None


def _to_kafka_python(container: Any, version: int, ours: Part) -> Any:
    values = {}
    defaults = {field.name: field.default for field in ours.__schema__.fields}
    for field in container._struct.fields.values():
        # It writes the tagged fields it is given, where others leave out those with their default.
        name = _our_name(field, ours)
        given = not field.tagged_field_q(version) or getattr(ours, name) != defaults[name]
        if field.for_version_q(version) and given:
            values[field.name] = _kafka_python_value(field, version, ours)
    return container(version=version, **values)


def _our_name(field: Any, ours: Part) -> str:
    """Our name for a field of theirs; kafka-python shortens some."""
    if field.name == "authorized_operations":
        return next(f.name for f in ours.__schema__.fields if f.name.endswith("authorized_operations"))
    return {"enable2_pc": "enable_2pc"}.get(str(field.name), str(field.name))


def _kafka_python_value(field: Any, version: int, ours: Part) -> Any:
    value = getattr(ours, _our_name(field, ours))
    if field.name == "authorized_operations":
        return {bit for bit in range(32) if value >> bit & 1}
    if isinstance(value, tuple):
        if field.is_struct_array():
            return [_to_kafka_python(field.data_class, version, item) for item in value]
        return list(value)
    if isinstance(value, Part):
        return _to_kafka_python(field.data_class, version, value)
    return value
