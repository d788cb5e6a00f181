"""Niceness that counts between sessions, too.

Linux may share processor time between sessions before it looks at processes
(`kernel.sched_autogroup_enabled`): a niceness then orders the processes of one session only, and each node
has a session of its own. The session as a whole has a niceness as well, in `/proc/PID/autogroup`; without
that file there is nothing to do.
"""

import contextlib
import os
from pathlib import Path


def set_session_niceness(pid: int, niceness: int) -> None:
    """Give the whole session of a process a niceness, as far as the kernel knows of such a thing."""
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text(str(niceness))


def leave_session(niceness: int) -> None:
    """Have this niceness, whoever started us, in a session of our own."""
    with contextlib.suppress(PermissionError):
        # A process that leads its group cannot, and is alone already.
        os.setsid()
    os.setpriority(os.PRIO_PROCESS, 0, niceness)
    set_session_niceness(os.getpid(), niceness)
