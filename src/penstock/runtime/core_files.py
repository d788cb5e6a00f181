"""No core files of a process that has secrets in its memory."""

import resource

# One byte, not none: with 0 the kernel still hands the memory to a program, where `core_pattern` names one.
_BYTES = 1


def prevent_core_files() -> None:
    """Have the kernel write no core file of this process, or of those that it starts from now on."""
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    if hard == resource.RLIM_INFINITY or hard >= _BYTES:
        resource.setrlimit(resource.RLIMIT_CORE, (_BYTES, _BYTES))
