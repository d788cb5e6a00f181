"""Where events go, without ever waiting for long."""

import os
import select
from typing import Protocol

# A pipe takes this much at once or not at all (POSIX PIPE_BUF): a line is never torn, not
# even between processes that share the pipe, and a writable pipe has room for it.
LINE_BYTES_MAX = 4_096
# How long a burst may wait for a slow reader, once; after that its events are dropped.
PATIENCE_MS = 10


class Sink(Protocol):
    """Takes one encoded line; False means that it was dropped. Never raises."""

    def write(self, line: bytes) -> bool: ...

    @property
    def is_terminal(self) -> bool: ...


class DescriptorSink:
    """A file descriptor, usually stderr.

    It is asked whether it can take a line before the line is written: a terminal stopped with
    Ctrl-S or a pipe whose reader hangs would otherwise stop the event loop with it. Switching
    the descriptor to non-blocking is no way out, because others share it.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)
        self._stalled = False

    @property
    def is_terminal(self) -> bool:
        return os.isatty(self._descriptor)

    def write(self, line: bytes) -> bool:
        try:
            if not self._poll.poll(0 if self._stalled else PATIENCE_MS):
                self._stalled = True
                return False
            self._stalled = False
            return os.write(self._descriptor, line) == len(line)
        except OSError:
            return False
