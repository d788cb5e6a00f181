"""Python processes of Spark end with the process that started them.

A killed driver or executor does not tell its Python workers. One that waits for a broker would go on
waiting for two minutes, hold its connections and its open transaction, and then find nobody to tell.
"""

import os
import threading
import time
from typing import NoReturn

LOOK_SECONDS = 1.0
# Spark tells its workers, and nobody else, how to connect to whoever started them.
_WORKER = "PYTHON_WORKER_FACTORY_"
_watched: set[int] = set()


def end_with_parent() -> None:
    """From now on, end this process when its parent has ended; only in a worker of Spark."""
    pid = os.getpid()
    # Threads do not come along in a fork, so each process has its own.
    if pid in _watched or not any(name.startswith(_WORKER) for name in os.environ):
        return
    _watched.add(pid)
    threading.Thread(target=_watch, args=(os.getppid(),), name="penstock-orphan", daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(LOOK_SECONDS)
    _end()


def _end() -> NoReturn:
    # Whatever this process could still write has no reader.
    os._exit(1)
