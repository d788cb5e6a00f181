"""Messages for the helper, in order, through a socket that may be full for a while."""

import asyncio
import errno as errnos
import socket
from collections import deque

from penstock.runtime.port import SyncTarget

# The buffer is full, or too many descriptors are on their way.
_FULL = (errnos.EAGAIN, errnos.ETOOMANYREFS)


class Outbox:
    """Sends at once when it can, and otherwise as soon as the socket takes more.

    A message that hands over a descriptor waits with its file, not with the descriptor's
    number: the number may mean another file by the time it is sent.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, connection: socket.socket) -> None:
        self._loop = loop
        self._connection = connection
        self._waiting: deque[tuple[bytes, SyncTarget | None]] = deque()

    def send(self, message: bytes, file: SyncTarget | None) -> None:
        """Send, or queue; raises OSError when the helper is gone."""
        if self._waiting:
            self._waiting.append((message, file))
        elif not self._send_now(message, file):
            self._waiting.append((message, file))
            self._loop.add_writer(self._connection, self._writable)

    def close(self) -> None:
        if self._waiting:
            self._loop.remove_writer(self._connection)
            self._waiting.clear()

    def _send_now(self, message: bytes, file: SyncTarget | None) -> bool:
        # A closed file has no descriptor: then the helper is not given one either, and
        # answers that it cannot sync that number.
        descriptor = file.fileno() if file is not None else -1
        try:
            if descriptor >= 0:
                socket.send_fds(self._connection, [message], [descriptor])
            else:
                self._connection.send(message)
        except OSError as error:
            if error.errno in _FULL:
                return False
            raise
        return True

    def _writable(self) -> None:
        while self._waiting:
            try:
                if not self._send_now(*self._waiting[0]):
                    return
            except OSError:
                # The reader sees the end of the helper as well, and tells everybody.
                self._waiting.clear()
                break
            self._waiting.popleft()
        self._loop.remove_writer(self._connection)
