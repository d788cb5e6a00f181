"""Letting the helper run when it has something to do, also beside a saturated loop.

The helper sleeps nearly always, but the scheduler does not know that it is worth waking at
once. Measured on two busy cores: as a session of its own (which the kernel's autogroup
schedules as a group of its own) a sync of 0.15 ms was answered after 4 ms in the median; in
the loop's session after 0.2 ms. A short time slice, which needs no privilege, brought the
99th percentile of 100 files at once from about 100 ms to 15 ms; a better nice value, which
does need one, that of single files from 4 ms to 0.3 ms.
"""

import contextlib
import ctypes
import os
import platform
import struct

NICE = -10
SLICE_NS = 300_000
_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}


def prefer(pid: int) -> None:
    """Ask for all of it; whatever the kernel or our rights refuse is done without."""
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, pid, NICE)
    number = _SCHED_SETATTR.get(platform.machine())
    if number is not None:
        _set_slice(number, pid, os.getpriority(os.PRIO_PROCESS, pid))


def _set_slice(number: int, pid: int, nice: int) -> None:
    # struct sched_attr: size, policy, flags, nice, priority, runtime, deadline, period. Since
    # Linux 6.12 the runtime of an ordinary process is its slice; before, it is ignored.
    attributes = struct.pack("=IIQiIQQQ", 48, 0, 0, nice, 0, SLICE_NS, 0, 0)
    ctypes.CDLL(None).syscall(number, pid, ctypes.c_char_p(attributes), 0)
