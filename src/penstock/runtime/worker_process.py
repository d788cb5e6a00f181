"""The worker process: runs pickled work of its node, one at a time, and sends the results back.

python -m penstock.runtime.worker_process <descriptor of a socket>
"""

import ctypes
import os
import pickle
import signal
import socket
import sys

from penstock.runtime.descriptors import is_readable
from penstock.runtime.heap import give_back
from penstock.runtime.peer_link import LENGTH

_PR_SET_PDEATHSIG = 1
_NICER = 10
# A worker without work for so long gives back what it does not need; it may be kept for seconds.
_REST_SECONDS = 0.1


def main(descriptor: int) -> None:
    """Serve until the node closes its end."""
    _die_with_the_node()
    # Ctrl-C on a terminal reaches the whole process group; the node decides what to do about it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(_NICER)  # serving requests comes first
    with socket.socket(fileno=descriptor) as node, node.makefile("rb") as requests:
        while prefix := requests.read(LENGTH.size):
            _serve(node, requests.read(LENGTH.unpack(prefix)[0]))
            # There is one request at a time, so nothing of the next one can have been read.
            if not is_readable(descriptor, _REST_SECONDS):
                give_back()


def _serve(node: socket.socket, request: bytes) -> None:
    answer = _answer(request)
    node.sendall(LENGTH.pack(len(answer)))
    node.sendall(answer)


def _answer(request: bytes) -> bytes:
    try:
        result = pickle.loads(request)()
        return pickle.dumps((True, result))
    except Exception as failure:
        return _pickled_failure(failure)


def _pickled_failure(failure: Exception) -> bytes:
    answer = pickle.dumps((False, RuntimeError(f"{type(failure).__name__}: {failure}")))
    try:
        exact = pickle.dumps((False, failure))
        pickle.loads(exact)  # some exceptions can be written but not read back
    except Exception:
        return answer
    return exact


def _die_with_the_node() -> None:
    """Have the kernel kill us with the node: another process may soon use its directory."""
    parent = os.getppid()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)


if __name__ == "__main__":
    main(int(sys.argv[1]))
