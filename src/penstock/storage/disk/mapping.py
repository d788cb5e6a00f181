"""Files in memory without a descriptor each.

Python's own `mmap` keeps a duplicate of the descriptor for as long as the mapping lives,
so that ten thousand mapped indexes would need ten thousand descriptors. The kernel does
not: a mapping outlives the descriptor it was made from.
"""

import ctypes
import os
import weakref

_PROT_READ = 1
_MAP_SHARED = 1
_FAILED = ctypes.c_void_p(-1).value
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.argtypes = [
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int64,
]
_libc.mmap.restype = ctypes.c_void_p
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


def map_readonly(descriptor: int, size: int) -> memoryview:
    """The first `size` bytes of a file as memory; unmapped when the last view of it is gone.

    Raises OSError. As with every mapping, touching pages beyond the end of a file that was
    cut short in the meantime kills the process: whoever truncates drops the view first.
    """
    if size == 0:
        return memoryview(b"")
    address = _libc.mmap(None, size, _PROT_READ, _MAP_SHARED, descriptor, 0)
    if address == _FAILED:
        errno = ctypes.get_errno()
        raise OSError(errno, os.strerror(errno))
    content = (ctypes.c_char * size).from_address(address)
    # Every view and slice refers to `content`, so it goes last. At exit the kernel unmaps.
    weakref.finalize(content, _libc.munmap, address, size).atexit = False
    return memoryview(content).cast("B").toreadonly()
