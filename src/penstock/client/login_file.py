"""How commands and jobs log in: settings of librdkafka from a file and from the environment.

    PENSTOCK_COMMAND_CONFIG          a file with lines of key=value, which nobody else may read
    PENSTOCK_OPTION_SASL_PASSWORD    the setting `sasl.password`, above the file's, and so with every other

A secret is no argument of a command: everyone on the machine can see those.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from io import StringIO

from penstock.core.model import PenstockError
from penstock.security.private_files import SecretExposed, read_private

COMMAND_CONFIG_VARIABLE = "PENSTOCK_COMMAND_CONFIG"
OPTION_PREFIX = "PENSTOCK_OPTION_"
LOGIN_FILE_BYTES_MAX = 1 << 20
# Settings of librdkafka that are secrets.
SECRETS = (
    *("sasl.password", "ssl.key.password", "ssl.key.pem", "ssl.keystore.password"),
    *(
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.config",
        "sasl.oauthbearer.assertion.private.key.pem",
    ),
    "sasl.oauthbearer.assertion.private.key.passphrase",
    # Kafka's own client has it there, and Spark's connector.
    "sasl.jaas.config",
)


class InvalidLogin(PenstockError):
    """A file with the settings of a login that cannot be used, or a secret where it must not be."""


_chosen: ContextVar[str] = ContextVar("penstock_login_file", default="")


@contextmanager
def chosen_login_file(path: str) -> Iterator[None]:
    """Let `login_options` read this file meanwhile, whatever the environment names; `""` leaves it that."""
    token = _chosen.set(path)
    try:
        yield
    finally:
        _chosen.reset(token)


def login_options(environment: Mapping[str, str]) -> dict[str, str]:
    """What the environment says, and below it the file that was chosen, or that the environment names."""
    chosen = _chosen.get()
    path = chosen or environment.get(COMMAND_CONFIG_VARIABLE, "")
    given = {
        variable.removeprefix(OPTION_PREFIX).lower().replace("_", "."): value
        for variable, value in environment.items()
        if variable.startswith(OPTION_PREFIX)
    }
    if not path:
        return given
    return read_login_file(path, "--command-config" if chosen else COMMAND_CONFIG_VARIABLE) | given


def login_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of a child process that is to log in in the same way."""
    chosen = _chosen.get()
    return {**environment, **({COMMAND_CONFIG_VARIABLE: chosen} if chosen else {})}


def read_login_file(path: str, named_by: str) -> dict[str, str]:
    """The settings in a file; `named_by` is what the user gave its name with."""
    try:
        content = read_private(path, LOGIN_FILE_BYTES_MAX + 1)
        lines = [line.strip() for line in StringIO(content.decode(), newline=None)]
    except SecretExposed as error:
        raise InvalidLogin(f"{named_by}: {error}") from None
    except UnicodeDecodeError:
        raise InvalidLogin(f"{named_by}: {path} is not UTF-8 text") from None
    if len(content) > LOGIN_FILE_BYTES_MAX:
        raise InvalidLogin(f"{named_by}: {path} has more than {LOGIN_FILE_BYTES_MAX} bytes")
    values = {}
    for number, line in enumerate(lines, 1):
        key, equals, value = line.partition("=")
        if not line or line.startswith(("#", "!")):
            continue
        if not equals or not key.strip():
            # Not what stands there: it may be a password.
            raise InvalidLogin(f"{path}, line {number}: expected key=value")
        values[key.strip()] = value.strip()
    return values


def refuse_secrets(flag: str, names: Iterable[str]) -> None:
    """Raise InvalidLogin if one of the settings that an argument gives is a secret."""
    for name in names:
        if name in SECRETS:
            variable = f"{OPTION_PREFIX}{name.replace('.', '_').upper()}"
            raise InvalidLogin(
                f"{flag} {name}: everyone on this machine can see the arguments of a command; put it into a "
                f"file that --command-config or {COMMAND_CONFIG_VARIABLE} names, or into {variable}"
            )
