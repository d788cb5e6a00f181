"""Options as Spark passes them, and the `kafka.*` ones as settings for librdkafka.

A query written for the official connector keeps its options: names that only the Java client
has are translated where librdkafka has the same thing under another name (also what Java says in JAAS
lines and key stores), left out where they tune machinery that does not exist here, and rejected where
leaving them out would change what the user gets. Whatever is left is passed on as it is, and
librdkafka rejects the names it does not know.

Spark lower-cases the keys of `dict(options)`, so every lookup here ignores case.

Left out: Java key stores (JKS), Kerberos, OAuth, and anything that names a Java class.
"""

import re
from collections.abc import Mapping, Sequence
from typing import overload

from penstock.client import Endpoint
from penstock.spark.errors import SparkOptionError

_TRUE, _FALSE = ("true", "1", "yes"), ("false", "0", "no")
_JAAS = re.compile(r"^\s*(?P<module>[\w.$]+)\s+\w+\s*(?P<arguments>.*?);?\s*$", re.DOTALL)
_ARGUMENT = re.compile(r"""([\w.]+)\s*=\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s;"']+)""")
_ESCAPE = re.compile(r"\\(.)")
_MECHANISMS = {"PlainLoginModule": "PLAIN", "ScramLoginModule": None}
# A PEM given as text; the Java client takes it in the same form.
_RENAMED_TEXT = {
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
}
# Leaving these out would be a weaker connection than the one asked for, or a puzzle.
_UNKNOWN = frozenset({
    "sasl.kerberos.kinit.cmd.java",
    "ssl.enabled.protocols",
    "ssl.keymanager.algorithm",
    "ssl.protocol",
    "ssl.provider",
    "ssl.secure.random.implementation",
    "ssl.trustmanager.algorithm",
    "security.providers",
})  # fmt: skip
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


@overload
def option(options: Mapping[str, str], name: str, default: str) -> str: ...


@overload
def option(options: Mapping[str, str], name: str, default: None = None) -> str | None: ...


def option(options: Mapping[str, str], name: str, default: str | None = None) -> str | None:
    """The value of an option, or `default` where it is not set."""
    value = options.get(name)
    if value is not None:
        return value
    wanted = name.lower()
    return next((value for key, value in options.items() if key.lower() == wanted), default)


@overload
def integer_option(options: Mapping[str, str], name: str, default: int, minimum: int = 0) -> int: ...


@overload
def integer_option(
    options: Mapping[str, str], name: str, default: None = None, minimum: int = 0
) -> int | None: ...


def integer_option(
    options: Mapping[str, str], name: str, default: int | None = None, minimum: int = 0
) -> int | None:
    """An option that is a whole number of at least `minimum`."""
    text = option(options, name)
    if text is None:
        return default
    try:
        value = int(text)
    except ValueError:
        raise SparkOptionError(name, f"{text!r} is not a whole number") from None
    if value < minimum:
        raise SparkOptionError(name, f"{value} is less than {minimum}")
    return value


def boolean_option(options: Mapping[str, str], name: str, default: bool) -> bool:
    """An option that is true or false."""
    text = option(options, name)
    if text is None:
        return default
    word = text.strip().lower()
    if word not in _TRUE + _FALSE:
        raise SparkOptionError(name, f"{text!r} is neither true nor false")
    return word in _TRUE


def choice_option(options: Mapping[str, str], name: str, choices: Sequence[str], default: str) -> str:
    """An option that is one of a few words."""
    text = option(options, name)
    if text is None:
        return default
    word = text.strip().lower()
    if word not in choices:
        raise SparkOptionError(name, f"{text!r} is none of {', '.join(choices)}")
    return word


def translate_security(given: Mapping[str, str]) -> dict[str, str]:
    """`given` with every Java-only name for a secret or a certificate replaced."""
    settings = dict(given)
    for name in settings:
        if name in _UNKNOWN:
            raise SparkOptionError(
                f"kafka.{name}", "is a setting of the Java client and has no counterpart here"
            )
    if (jaas := settings.pop("sasl.jaas.config", None)) is not None:
        settings = _from_jaas(jaas) | settings
    for java, ours in _RENAMED_TEXT.items():
        if java in settings:
            settings[ours] = settings.pop(java)
    _translate_trust_store(settings)
    _translate_key_store(settings)
    if settings.get("ssl.endpoint.identification.algorithm") == "":
        settings["ssl.endpoint.identification.algorithm"] = "none"
    return settings


def _from_jaas(line: str) -> dict[str, str]:
    """User and password of a JAAS line; the line itself is never shown, for what it holds."""
    name = "kafka.sasl.jaas.config"
    parts = _JAAS.match(line)
    if parts is None:
        raise SparkOptionError(name, 'expected: <login module> required username="..." password="...";')
    module = parts["module"].rpartition(".")[2]
    if module not in _MECHANISMS:
        raise SparkOptionError(name, f"{module} is not supported, only {' and '.join(_MECHANISMS)}")
    arguments = {key: _plain(value) for key, value in _ARGUMENT.findall(parts["arguments"])}
    missing = [key for key in ("username", "password") if key not in arguments]
    if missing:
        raise SparkOptionError(name, f"{module} has no {' and no '.join(missing)}")
    found = {"sasl.username": arguments["username"], "sasl.password": arguments["password"]}
    mechanism = _MECHANISMS[module]
    return found if mechanism is None else found | {"sasl.mechanism": mechanism}


def _plain(text: str) -> str:
    return _ESCAPE.sub(r"\1", text[1:-1]) if text[0] in "\"'" else text


def _translate_trust_store(settings: dict[str, str]) -> None:
    location = settings.pop("ssl.truststore.location", None)
    kind = settings.pop("ssl.truststore.type", None)
    settings.pop("ssl.truststore.password", None)
    if location is None:
        return
    if _kind(location, kind) != "PEM":
        raise SparkOptionError(
            "kafka.ssl.truststore.location",
            f"{location} is not PEM; export the certificates to a .pem file and set"
            " kafka.ssl.truststore.type to PEM",
        )
    settings["ssl.ca.location"] = location


def _translate_key_store(settings: dict[str, str]) -> None:
    location = settings.get("ssl.keystore.location")
    kind = settings.pop("ssl.keystore.type", None)
    if location is None:
        return
    match _kind(location, kind):
        case "PEM":
            # One file holds the key and its certificates.
            settings["ssl.key.location"] = settings["ssl.certificate.location"] = location
            del settings["ssl.keystore.location"]
            settings.pop("ssl.keystore.password", None)
        case "PKCS12":
            pass
        case other:
            raise SparkOptionError("kafka.ssl.keystore.location", f"{location} is {other}, not PEM or PKCS12")


def _kind(location: str, named: str | None) -> str:
    if named is not None:
        return named.strip().upper()
    ending = location.lower().rpartition(".")[2]
    return {"pem": "PEM", "crt": "PEM", "p12": "PKCS12", "pfx": "PKCS12"}.get(ending, "JKS")


def kafka_settings(options: Mapping[str, str]) -> dict[str, str]:
    """What the `kafka.*` options mean to librdkafka; SparkOptionError for what cannot be meant here."""
    given = {
        key[len(PREFIX) :].lower(): value
        for key, value in options.items()
        if key.lower().startswith(PREFIX) and value is not None
    }
    bootstrap = given.pop(BOOTSTRAP, "").strip()
    if not bootstrap:
        raise SparkOptionError(PREFIX + BOOTSTRAP, "is required: host:port of one broker or more")
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
        raise SparkOptionError(PREFIX + name, f"is not supported: {why}")


def _kilobytes(text: str) -> str:
    try:
        return str(max(1, int(text) // 1024))
    except ValueError:
        raise SparkOptionError("kafka.buffer.memory", f"{text!r} is not a whole number") from None
