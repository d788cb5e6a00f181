"""What opening a log found."""

from dataclasses import dataclass
from typing import NamedTuple

from penstock.core.model import Offset
from penstock.storage.log.values import Damage


class Cut(NamedTuple):
    """The end of a log from the first batch on that is not good.

    Most often it is a write that was never finished, nor acknowledged. What may be more than that
    was kept: `kept` is the file in the quarantine with the bytes (the first of them, if several).
    """

    segment: Offset
    offset: Offset
    position: int
    lost_bytes: int
    reason: str
    kept: str | None = None


@dataclass(slots=True)
class RecoveryReport:
    """Filled in while a log is opened."""

    recovery_point: Offset = Offset(0)  # noqa: RUF009 - a NewType is the value itself
    end: Offset = Offset(0)  # noqa: RUF009
    bytes_read: int = 0
    batches_read: int = 0
    indexes_rebuilt: int = 0
    epochs_rebuilt: bool = False
    checkpoint_lost: bool = False
    cut: Cut | None = None
    corruption: tuple[Damage, ...] = ()

    @property
    def was_clean(self) -> bool:
        """Whether the log was closed properly and nothing has happened to it since."""
        untouched = self.bytes_read == 0 and self.cut is None and not self.indexes_rebuilt
        return untouched and not (self.corruption or self.epochs_rebuilt or self.checkpoint_lost)
