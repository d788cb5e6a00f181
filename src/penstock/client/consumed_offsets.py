"""How far a consumer's messages were handed out, processed and committed.

    fetched ── hand_out ──► in hand ── settle ──► processed ── take_processed ──► committed in the background
                               └──────────── committed: by the program, or by a transaction ────────────┘

An offset is that of the next message to be read.
"""

from collections.abc import Collection, Mapping
from typing import Generic

from penstock.client.message import Message, TopicPartition
from penstock.client.record_types import ReadKey as K
from penstock.client.record_types import ReadValue as V


class ConsumedOffsets(Generic[K, V]):
    """The bookkeeping of one consumer; it asks nobody."""

    def __init__(self) -> None:
        # What was handed out last, and may not be processed yet.
        self._in_hand: list[Message[K, V]] = []
        # Behind the last message handed out; the first one that a rewind goes back to.
        self._positions: dict[TopicPartition, int] = {}
        self._rewind_to: dict[TopicPartition, int] = {}
        # The first message handed out since the partition was assigned.
        self._first: dict[TopicPartition, int] = {}
        # Processed, and not handed over to be committed yet.
        self._processed: dict[TopicPartition, int] = {}
        # Whether partitions were taken away whose messages are not committed.
        self.has_lost = False

    @property
    def has_processed(self) -> bool:
        return bool(self._processed)

    def partitions(self) -> list[TopicPartition]:
        """Those that messages were handed out of."""
        return list(self._positions)

    def hand_out(self, messages: list[Message[K, V]]) -> None:
        self._in_hand = messages
        for message in messages:
            partition = TopicPartition(message.topic, message.partition)
            self._rewind_to.setdefault(partition, message.offset)
            self._first.setdefault(partition, message.offset)
            self._positions[partition] = message.offset + 1

    def settle(self) -> None:
        """What was handed out is processed."""
        for message in self._in_hand:
            self._processed[TopicPartition(message.topic, message.partition)] = message.offset + 1
        self._in_hand = []

    def processed(self, offsets: Mapping[TopicPartition, int]) -> None:
        self._processed.update(offsets)

    def take_processed(self) -> dict[TopicPartition, int]:
        """What is to be committed in the background, once."""
        processed, self._processed = self._processed, {}
        return processed

    def uncommitted(self) -> dict[TopicPartition, int]:
        """Where messages were handed out since the last commit: the next offset."""
        return {one: self._positions[one] for one in self._rewind_to}

    def committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        """A rewind goes back to these."""
        self.has_lost = False
        for partition, offset in offsets.items():
            if self._processed.get(partition, offset + 1) <= offset:
                del self._processed[partition]
            if self._positions.get(partition) == offset:
                self._rewind_to.pop(partition, None)
            elif partition in self._rewind_to:
                self._rewind_to[partition] = offset

    def moved(self, partition: TopicPartition, offset: int) -> None:
        """The consumer goes on from there."""
        self._positions[partition] = offset

    def first_assigned(self) -> dict[TopicPartition, int]:
        """The first message handed out since each partition was assigned."""
        return dict(self._first)

    def drop_in_hand(self) -> dict[TopicPartition, int]:
        """Nothing is in hand any more; returns the first message that was, of each partition."""
        first: dict[TopicPartition, int] = {}
        for message in self._in_hand:
            first.setdefault(message.topic_partition, message.offset)
        self._in_hand, self.has_lost = [], False
        return first

    def drop_uncommitted(self) -> dict[TopicPartition, int]:
        """Nothing was handed out since the last commit; returns where that was."""
        self._in_hand, self.has_lost = [], False
        targets, self._rewind_to = self._rewind_to, {}
        return targets

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Partitions are assigned anew, or somebody else's."""
        for partition in partitions:
            self._positions.pop(partition, None)
            self._first.pop(partition, None)
            if self._rewind_to.pop(partition, None) is not None:
                self.has_lost = True
            self._processed.pop(partition, None)
        self._in_hand = [one for one in self._in_hand if one.topic_partition not in partitions]
