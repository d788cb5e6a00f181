"""How the command starts, and how it ends: exit codes, and one line instead of a traceback."""

import gc
import os
import sys
from collections.abc import Sequence

from penstock import __version__
from penstock.core.model import PenstockError

DONE = 0
FAILED = 1
INTERRUPTED = 130  # 128 + SIGINT, as shells say it
# Set to anything, it lets an unexpected exception through: for whoever fixes the bug.
TRACEBACK_VARIABLE = "PENSTOCK_TRACEBACK"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    _open_standard_streams()
    try:
        code = _run(given)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return _interrupted()
    except BrokenPipeError:
        return _reader_gone()
    return code


def _open_standard_streams() -> None:
    """Give streams that the caller closed (`>&-`) somewhere to go.

    Their numbers are free otherwise: the next file we open would get them, and with them whatever
    a library prints.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # In this order each one gets its own number, the lowest that is free.
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - it lives as long as we do


def _run(arguments: list[str]) -> int:
    if arguments == ["--version"]:
        # Used by scripts and packagers: printed before typer and rich are imported.
        sys.stdout.write(f"penstock {__version__}\n")
        return DONE
    try:
        if not _is_run_as_node(arguments):
            from penstock.cli.commands import command_for

            command_for(arguments, os.environ).main(args=arguments, prog_name="penstock")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else DONE if end.code is None else FAILED
        return _interrupted() if code == INTERRUPTED else code
    except (PenstockError, OSError) as error:
        if isinstance(error, BrokenPipeError):
            raise
        return _failed(str(error) or type(error).__name__)
    except Exception as error:
        # The last line of defence: a bug here is still one line for the person who typed.
        if os.environ.get(TRACEBACK_VARIABLE):
            raise
        return _failed(
            f"unexpected {type(error).__name__}: {error} ({TRACEBACK_VARIABLE}=1 shows the traceback)"
        )
    return DONE


def _is_run_as_node(arguments: list[str]) -> bool:
    """Run a node if the arguments are plain ones of `penstock up`; returns when it has ended."""
    if arguments[:1] != ["up"]:
        return False
    # What a start makes stays. The runtime looks for garbage from when the node runs.
    gc.disable()
    try:
        from penstock.cli.node_process import parse_plain, run_node_process

        plain = parse_plain(arguments[1:])
        if plain is not None:
            run_node_process(plain)
        return plain is not None
    finally:
        gc.enable()


def _failed(reason: str) -> int:
    from penstock.cli.output import note

    note(f"penstock: {' '.join(reason.split())}")
    return FAILED


def _interrupted() -> int:
    sys.stderr.write("penstock: interrupted\n")
    return INTERRUPTED


def _reader_gone() -> int:
    """The reader of our output has left (`| head`): not an error."""
    # The interpreter flushes stdout once more at exit, which must find a place to go.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return FAILED
