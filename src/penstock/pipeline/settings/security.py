"""Passwords and certificates: Java's way of saying them, in librdkafka's words."""

import re
from collections.abc import Mapping

from penstock.pipeline.errors import BadOption

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


def translate_security(given: Mapping[str, str]) -> dict[str, str]:
    """`given` with every Java-only name for a secret or a certificate replaced."""
    settings = dict(given)
    for name in settings:
        if name in _UNKNOWN:
            raise BadOption(f"kafka.{name}", "is a setting of the Java client and has no counterpart here")
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
        raise BadOption(name, 'expected: <login module> required username="..." password="...";')
    module = parts["module"].rpartition(".")[2]
    if module not in _MECHANISMS:
        raise BadOption(name, f"{module} is not supported, only {' and '.join(_MECHANISMS)}")
    arguments = {key: _plain(value) for key, value in _ARGUMENT.findall(parts["arguments"])}
    missing = [key for key in ("username", "password") if key not in arguments]
    if missing:
        raise BadOption(name, f"{module} has no {' and no '.join(missing)}")
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
        raise BadOption(
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
            raise BadOption("kafka.ssl.keystore.location", f"{location} is {other}, not PEM or PKCS12")


def _kind(location: str, named: str | None) -> str:
    if named is not None:
        return named.strip().upper()
    ending = location.lower().rpartition(".")[2]
    return {"pem": "PEM", "crt": "PEM", "p12": "PKCS12", "pfx": "PKCS12"}.get(ending, "JKS")
