"""The command line of a child process that does not outlive whoever started it."""

import os
import sys
from collections.abc import Sequence

# The kernel ends the child if we are killed and cannot (PR_SET_PDEATHSIG is 1, SIGTERM is 15).
_LAUNCH = """\
import ctypes, importlib, os, sys
ctypes.CDLL(None).prctl(1, 15)
if os.getppid() != int(sys.argv[1]):
    sys.exit("penstock: whoever started this is gone")
sys.exit(importlib.import_module(sys.argv[2]).main(sys.argv[3:]))
"""


def child_command(module: str, arguments: Sequence[str]) -> list[str]:
    """Calls `main(arguments)` of a module; it must be started from the main thread."""
    return [sys.executable, "-c", _LAUNCH, str(os.getpid()), module, *arguments]
