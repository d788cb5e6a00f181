"""A directory that is removed at the end, even if this process is killed before."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

# Waits until nobody holds the other end of its stdin any more. A node that is being killed meanwhile
# may still make a file, so it looks again.
_REMOVE = 'read -r _; n=0; while [ -e "$1" ] && [ $n -lt 50 ]; do rm -rf "$1"; n=$((n+1)); sleep 0.1; done'
PREFIX = "penstock-test-"


@contextmanager
def scratch_directory(parent: str | None = None) -> Iterator[str]:
    """A new directory, below `parent` if it is given."""
    path = tempfile.mkdtemp(prefix=PREFIX, dir=parent)
    try:
        remover = subprocess.Popen(
            ["/bin/sh", "-c", _REMOVE, "sh", path],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=os.sep,
            # A Ctrl-C is for the test.
            start_new_session=True,
        )
    except BaseException:
        os.rmdir(path)
        raise
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        assert remover.stdin is not None
        remover.stdin.close()
        remover.wait()
