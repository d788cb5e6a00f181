"""`${NAME:default}` in values of the file; `$${` writes `${` itself."""

import re
from collections.abc import Mapping

_REFERENCE = re.compile(r"\$(\$\{)|\$\{([A-Za-z_][A-Za-z0-9_]*)(?::([^}]*))?\}")


def expand(text: str, environment: Mapping[str, str]) -> str:
    """Replace each reference; KeyError names a variable that is not set and has no default.

    As in a shell's `${NAME:-default}`, a variable set to nothing counts as not set.
    """

    def replace(match: re.Match[str]) -> str:
        escaped, name, default = match.groups()
        if escaped:
            return "${"
        if value := environment.get(name):
            return value
        if default is None:
            raise KeyError(name)
        return str(default)

    return _REFERENCE.sub(replace, text)
