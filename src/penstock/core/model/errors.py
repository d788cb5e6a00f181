"""The root of every exception that Penstock raises about the world.

Refusals are values, not exceptions, and bugs are failed asserts; what is left are
bytes that break a rule, and storage that failed or lies.
"""

import enum


class PenstockError(Exception):
    """Something outside this code's control went wrong."""


class Fault(enum.Enum):
    """Whose fault a protocol error is: decides who is told, and what is logged."""

    PEER = "peer"
    OURS = "ours"


class ProtocolError(PenstockError):
    """Bytes from (or for) the other side of a connection break the protocol."""

    def __init__(self, message: str, fault: Fault = Fault.PEER) -> None:
        super().__init__(message)
        self.fault = fault


class CorruptionError(PenstockError):
    """Bytes that were good once are not any more. Not an I/O error: retrying cannot help."""


class StorageError(PenstockError):
    """The disk refused or failed; what it was asked to do has not happened for sure."""
