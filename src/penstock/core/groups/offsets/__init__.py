"""Where groups stand: commit, fetch, delete and expire positions.

Left out: commits inside transactions. They will be facts that wait in the image until their
marker comes; `GroupImage.is_unstable` is where a fetch that asks for stable offsets sees them.
"""

from typing import assert_never

from penstock.core.groups.classic import ClassicGroups
from penstock.core.groups.commands import (
    CommitOffsets,
    DeleteOffsets,
    FetchOffsets,
    ForgetTopic,
    OffsetCommand,
)
from penstock.core.groups.image import GroupImage
from penstock.core.groups.offsets.commit import commit
from penstock.core.groups.offsets.deletion import delete, forget_topic
from penstock.core.groups.offsets.expiry import OffsetSweep
from penstock.core.groups.offsets.fetch import fetch
from penstock.core.groups.outcome import Turn

__all__ = ["OffsetSweep", "handle_offsets"]


def handle_offsets(command: OffsetCommand, image: GroupImage, classic: ClassicGroups, turn: Turn) -> None:
    match command:
        case CommitOffsets():
            commit(classic.find(command.group_id), command, turn)
        case FetchOffsets():
            fetch(image, command, turn)
        case DeleteOffsets():
            delete(classic.find(command.group_id), image, command, turn)
        case ForgetTopic():
            forget_topic(image, command, turn)
        case _:
            assert_never(command)
