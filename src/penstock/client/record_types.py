"""What clients are generic in: the types of keys and values that are sent, and of those that are read.

Unless a serializer says otherwise, bytes and text may be sent, and bytes are read.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    SentKey = TypeVar("SentKey", default=bytes | str | None)
    SentValue = TypeVar("SentValue", default=bytes | str | None)
    ReadKey = TypeVar("ReadKey", default=bytes | None)
    ReadValue = TypeVar("ReadValue", default=bytes | None)
else:
    from typing import TypeVar

    # Defaults are for type checkers: typing has them from Python 3.13 on.
    SentKey = TypeVar("SentKey")
    SentValue = TypeVar("SentValue")
    ReadKey = TypeVar("ReadKey")
    ReadValue = TypeVar("ReadValue")
