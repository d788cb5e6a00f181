"""Bringing a range of a file into the page cache, on a thread that may wait for the device."""

import os
from collections.abc import Callable

from penstock.storage.disk.errors import translated
from penstock.storage.disk.port import File

CHUNK_BYTES = 1 << 20


def warmer(file: File, position: int, length: int) -> Callable[[], None]:
    """Work for another thread: read the range once, and forget it.

    It reads on a duplicate of the descriptor, because the file's own may be lent to another
    file, or closed, while the thread is at it.
    """
    descriptor = file.fileno()
    if descriptor < 0:
        return _nothing
    with translated("warm", file.path):
        own = os.dup(descriptor)

    def read() -> None:
        scratch = bytearray(min(CHUNK_BYTES, length))
        at, end = position, position + length
        try:
            while at < end:
                count = os.preadv(own, [memoryview(scratch)[: end - at]], at)
                if count == 0:
                    break
                at += count
        finally:
            os.close(own)

    return read


def _nothing() -> None:
    """What is in memory is warm."""
