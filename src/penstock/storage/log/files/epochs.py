"""Where each leader epoch began: one row `epoch 4 │ start offset 8` per epoch, growing."""

import struct

from penstock.core.model import LeaderEpoch, Offset
from penstock.core.replica import EpochStart, LeaderEpochHistory
from penstock.storage.disk import Buffer
from penstock.storage.log.errors import CorruptFile
from penstock.storage.log.files.frame import Kind, frame, unframe

_ROW = struct.Struct("<iq")


def encode_epochs(history: LeaderEpochHistory) -> bytes:
    return frame(Kind.EPOCHS, epoch_rows(history))


def decode_epochs(content: Buffer) -> LeaderEpochHistory:
    return parse_epoch_rows(unframe(Kind.EPOCHS, content))


def epoch_rows(history: LeaderEpochHistory) -> bytes:
    """The rows alone, as a checkpoint carries them."""
    return b"".join(_ROW.pack(*entry) for entry in history.entries())


def parse_epoch_rows(rows: Buffer) -> LeaderEpochHistory:
    """What `epoch_rows` wrote, or CorruptFile."""
    if len(rows) % _ROW.size:
        raise CorruptFile("the leader epochs end in the middle of a row")
    starts = [EpochStart(LeaderEpoch(epoch), Offset(start)) for epoch, start in _ROW.iter_unpack(rows)]
    history = LeaderEpochHistory(starts)
    if list(history.entries()) != starts:
        raise CorruptFile("the leader epochs do not grow")
    return history
