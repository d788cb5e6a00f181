"""The type of anything that lends out its bytes: bytes, bytearray, memoryview, mmap."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Buffer
else:
    # Python 3.11 has no such class at runtime; annotations are all it is for.
    Buffer = object

__all__ = ["Buffer"]
