"""How a node starts processes of its own: they do not outlive it, and get none of its secrets."""

import os
import sys
from collections.abc import Mapping, Sequence

# What a process needs to run where its parent does. Everything else stays here: passwords, keys of clouds and
# settings may stand in variables, and whoever is the same user reads them in /proc.
_PASSED_ON = frozenset(
    {"HOME", "LANG", "LANGUAGE", "LD_LIBRARY_PATH", "LD_PRELOAD", "PATH", "TMPDIR", "TZ", "VIRTUAL_ENV"}
)
_PASSED_ON_PREFIXES = (
    *("LC_", "PYTHON", "COVERAGE", "COV_CORE_", "MALLOC_", "GRPC_TRACE", "GRPC_VERBOSITY"),
    *("SSL_CERT_", "OPENSSL_", "UV_", "FAKETIME"),
)
# The kernel ends the child if we are killed and cannot (PR_SET_PDEATHSIG is 1, SIGTERM is 15).
_LAUNCH = """\
import ctypes, importlib, os, sys
ctypes.CDLL(None).prctl(1, 15)
if os.getppid() != int(sys.argv[1]):
    sys.exit("penstock: whoever started this is gone")
sys.exit(importlib.import_module(sys.argv[2]).main(sys.argv[3:]))
"""


def child_environment(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables that a child gets."""
    given = os.environ if environment is None else environment
    return {
        name: value
        for name, value in given.items()
        if name in _PASSED_ON or name.startswith(_PASSED_ON_PREFIXES)
    }


def child_command(module: str, arguments: Sequence[str]) -> list[str]:
    """Calls `main(arguments)` of a module; it must be started from the main thread."""
    return [sys.executable, "-c", _LAUNCH, str(os.getpid()), module, *arguments]
