"""The keys below `kafka.`: which pass, which get another name, which are refused."""

from collections.abc import Mapping

from penstock.client import Endpoint
from penstock.pipeline.errors import BadOption
from penstock.pipeline.settings.security import translate_security

PREFIX = "kafka."
BOOTSTRAP = "bootstrap.servers"
_BYTES_ONLY = "keys and values are bytes; cast the columns instead"
_SPARK_KEEPS_OFFSETS = "Spark keeps the offsets of a query in its checkpoint"
# The official connector refuses these as well.
_REFUSED = {
    "auto.offset.reset": "use startingOffsets",
    "key.deserializer": _BYTES_ONLY,
    "value.deserializer": _BYTES_ONLY,
    "key.serializer": _BYTES_ONLY,
    "value.serializer": _BYTES_ONLY,
    "enable.auto.commit": _SPARK_KEEPS_OFFSETS,
    "auto.commit.interval.ms": _SPARK_KEEPS_OFFSETS,
    "interceptor.classes": "an interceptor could change or drop records unseen",
}
_NO_CLASSES = "a Java class cannot be loaded here"
_RENAMED = {
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "max.request.size": "message.max.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "delivery.timeout.ms": "message.timeout.ms",
}
# They tune parts of the Java client that have no counterpart.
_WITHOUT_MEANING = frozenset({
    "auto.include.jmx.reporter",
    "default.api.timeout.ms",
    "enable.metrics.push",
    "exclude.internal.topics",
    "max.block.ms",
    "max.poll.records",
    "metadata.max.idle.ms",
    "metadata.recovery.strategy",
    "metric.reporters",
    "metrics.num.samples",
    "metrics.recording.level",
    "metrics.sample.window.ms",
    "partitioner.availability.timeout.ms",
})  # fmt: skip


def kafka_settings(options: Mapping[str, str]) -> dict[str, str]:
    """What the `kafka.*` options mean to librdkafka; BadOption for what cannot be meant here."""
    given = {
        key[len(PREFIX) :].lower(): value
        for key, value in options.items()
        if key.lower().startswith(PREFIX) and value is not None
    }
    bootstrap = given.pop(BOOTSTRAP, "").strip()
    if not bootstrap:
        raise BadOption(PREFIX + BOOTSTRAP, "is required: host:port of one broker or more")
    for name in given:
        _refuse(name)
    settings = {BOOTSTRAP: bootstrap}
    for name, value in translate_security(given).items():
        if name == "buffer.memory":
            settings["queue.buffering.max.kbytes"] = _kilobytes(value)
        elif name not in _WITHOUT_MEANING:
            settings[_RENAMED.get(name, name)] = value
    return settings


def kafka_endpoint(settings: Mapping[str, str]) -> Endpoint:
    """The same settings for `penstock.client`."""
    rest = {name: value for name, value in settings.items() if name != BOOTSTRAP}
    return Endpoint(settings[BOOTSTRAP], rest)


def _refuse(name: str) -> None:
    why = _REFUSED.get(name)
    if why is None and name.endswith((".class", ".classes")):
        why = _NO_CLASSES
    if why is not None:
        raise BadOption(PREFIX + name, f"is not supported: {why}")


def _kilobytes(text: str) -> str:
    try:
        return str(max(1, int(text) // 1024))
    except ValueError:
        raise BadOption("kafka.buffer.memory", f"{text!r} is not a whole number") from None
