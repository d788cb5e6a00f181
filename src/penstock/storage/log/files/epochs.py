"""Where each leader epoch began: one row `epoch 4 │ start offset 8` per epoch, growing."""

import struct

from penstock.core.model import LeaderEpoch, Offset
from penstock.core.replica import EpochHistory, EpochStart
from penstock.storage.disk import Buffer
from penstock.storage.log.errors import CorruptFile
from penstock.storage.log.files.frame import Kind, frame, unframe

_ROW = struct.Struct("<iq")


def encode_epochs(history: EpochHistory) -> bytes:
    return frame(Kind.EPOCHS, b"".join(_ROW.pack(*entry) for entry in history.entries()))


def decode_epochs(content: Buffer) -> EpochHistory:
    payload = unframe(Kind.EPOCHS, content)
    if len(payload) % _ROW.size:
        raise CorruptFile("the leader epochs end in the middle of a row")
    rows = [EpochStart(LeaderEpoch(epoch), Offset(start)) for epoch, start in _ROW.iter_unpack(payload)]
    history = EpochHistory(rows)
    if list(history.entries()) != rows:
        raise CorruptFile("the leader epochs do not grow")
    return history
