"""Options as Spark passes them, and the `kafka.*` ones as settings for librdkafka.

A query written for the official connector keeps its options: names that only the Java client
has are translated where librdkafka has the same thing under another name (also what Java says in JAAS
lines and key stores), left out where they tune machinery that does not exist here, and rejected where
leaving them out would change what the user gets. Whatever is left is passed on as it is, and
librdkafka rejects the names it does not know.

Spark lower-cases the keys of `dict(options)`, so every lookup here ignores case.

A login need not stand among the options, which Spark shows in plans and logs. Kafka's config providers are
honoured (`${file:/path:key}`, `${env:NAME}`), `loginFile` names a file, and beneath both is what
`penstock.client.login_file` finds in the environment. All of it is read where the query is planned; tasks
get the values.

Left out: Java key stores (JKS), Kerberos, OAuth but for clients' credentials, and anything that names another
Java class.
"""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import overload

from penstock.client import Endpoint
from penstock.client.login_file import login_options, read_login_file
from penstock.core.model import PenstockError
from penstock.security.private_files import SecretExposed, read_private
from penstock.spark.errors import SparkOptionError

_TRUE, _FALSE = ("true", "1", "yes"), ("false", "0", "no")
_JAAS = re.compile(r"^\s*(?P<module>[\w.$]+)\s+\w+\s*(?P<arguments>.*?);?\s*$", re.DOTALL)
_ARGUMENT = re.compile(r"""([\w.]+)\s*=\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s;"']+)""")
_ESCAPE = re.compile(r"\\(.)")
_OAUTH_MODULE = "OAuthBearerLoginModule"
_MECHANISMS = {"PlainLoginModule": "PLAIN", "ScramLoginModule": None, _OAUTH_MODULE: "OAUTHBEARER"}
# What a client says of itself to who gives it tokens: in JAAS lines, and as settings since Kafka 4.1.
_OAUTH_ARGUMENTS = {"clientId": "client.id", "clientSecret": "client.secret", "scope": "scope"}
_OAUTH_SETTINGS = {
    "sasl.oauthbearer.client.credentials.client.id": "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.credentials.client.secret": "sasl.oauthbearer.client.secret",
}
_TOKEN_ENDPOINT = "sasl.oauthbearer.token.endpoint.url"
# It does what librdkafka does by itself.
_LOGIN_HANDLER, _OAUTH_HANDLER = "sasl.login.callback.handler.class", "OAuthBearerLoginCallbackHandler"
_PROVIDERS = "config.providers"
_SECRET_BYTES_MAX = 1 << 20
_REFERENCE = re.compile(r"\$\{([^}]*?):(?:([^}]*?):)?([^}]*?)\}")
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
LOGIN_FILE = "loginFile"
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
    if _TOKEN_ENDPOINT in settings:
        settings.setdefault("sasl.oauthbearer.method", "oidc")
    for java, ours in (_RENAMED_TEXT | _OAUTH_SETTINGS).items():
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
    if module == _OAUTH_MODULE:
        found = {
            f"sasl.oauthbearer.{ours}": arguments[java]
            for java, ours in _OAUTH_ARGUMENTS.items()
            if java in arguments
        }
        return found | {"sasl.mechanism": "OAUTHBEARER"}
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
    given = _with_references(given)
    bootstrap = given.pop(BOOTSTRAP, "").strip()
    if not bootstrap:
        raise SparkOptionError(PREFIX + BOOTSTRAP, "is required: host:port of one broker or more")
    if given.get(_LOGIN_HANDLER, "").rpartition(".")[2] == _OAUTH_HANDLER:
        del given[_LOGIN_HANDLER]
    for name in given:
        _refuse(name)
    settings = _login(options) | {BOOTSTRAP: bootstrap}
    for name, value in translate_security(given).items():
        if name == "buffer.memory":
            settings["queue.buffering.max.kbytes"] = _kilobytes(value)
        elif name not in _WITHOUT_MEANING:
            settings[_RENAMED.get(name, name)] = value
    return settings


def _login(options: Mapping[str, str]) -> dict[str, str]:
    """The settings in the file that is named by an option, or else what the environment has."""
    file = option(options, LOGIN_FILE)
    given = login_options(os.environ) if file is None else read_login_file(file, f"option {LOGIN_FILE}")
    return translate_security(given)


def _with_references(given: Mapping[str, str]) -> dict[str, str]:
    """`given` without config providers, and with what they provide where a value refers to it."""
    names = [name.strip() for name in given.get(_PROVIDERS, "").split(",") if name.strip()]
    providers = {name: _provider(given, name) for name in names}
    settings = {key: value for key, value in given.items() if not key.startswith(_PROVIDERS)}

    def provided(found: re.Match[str]) -> str:
        name, path, key = found.groups()
        if name not in providers:
            return found[0]
        try:
            return providers[name](path or "", key)
        except (PenstockError, OSError, UnicodeDecodeError, KeyError) as error:
            why = "there is none" if isinstance(error, KeyError) else error
            raise SparkOptionError(f"{PREFIX}{_PROVIDERS}", f"{found[0]}: {why}") from None

    return {key: _REFERENCE.sub(provided, value) for key, value in settings.items()}


def _provider(given: Mapping[str, str], name: str) -> "_Provider":
    """One of Kafka's own providers; SparkOptionError for another one, and for what it is told besides."""
    key = f"{_PROVIDERS}.{name}.class"
    kind = given.get(key, "").rpartition(".")[2]
    if kind not in _KINDS:
        raise SparkOptionError(PREFIX + key, f"must be one of {', '.join(_KINDS)}, as Kafka has them")
    for other in given:
        if other.startswith(f"{_PROVIDERS}.{name}.") and other != key:
            raise SparkOptionError(PREFIX + other, "is not supported")
    return _KINDS[kind]


def _from_file(path: str, key: str) -> str:
    return read_login_file(path, "a config provider")[key]


def _from_environment(_: str, key: str) -> str:
    return os.environ[key]


def _from_directory(path: str, key: str) -> str:
    try:
        return read_private(Path(path) / key, _SECRET_BYTES_MAX).decode()
    except SecretExposed as error:
        raise PenstockError(str(error)) from None


_Provider = Callable[[str, str], str]
_KINDS: Mapping[str, _Provider] = {
    "FileConfigProvider": _from_file,
    "EnvVarConfigProvider": _from_environment,
    "DirectoryConfigProvider": _from_directory,
}


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
