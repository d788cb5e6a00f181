"""What a member of a share group had leased can be delivered to others when the member is gone.

Each queue of the topics that the member subscribed to, a few in a turn, is asked for the member's leases, and
then told to release those: a member may come back under its id, and what it has got since is its own. What is
lost on the way does no harm: leases end by themselves. The queues of a group that was deleted are forgotten
in the same way; one that is not goes on where it was if the group comes back.
"""

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

from penstock.broker.queues.peers import QueuePeers
from penstock.core.metadata import QUEUES_TOPIC, MetadataImage
from penstock.core.model import PartitionIndex, TopicId
from penstock.core.queues import FindLeases, ForgetQueue, LeasesFound, QueueId, QueueReply, ReleaseConsumer
from penstock.runtime import Runtime

QUEUES_PER_TURN_MAX = 100
# Beyond that the leases of further members are left to end by themselves.
WAITING_MAX = 100_000
# Whether somebody is a member of a group, or may be for all that this node knows.
MayBeMember: TypeAlias = Callable[[str, str], bool]


class ShareMemberReleases:
    """Sends `ReleaseConsumer` to the queues of lost members. Set `may_be_member` before the first one."""

    def __init__(self, runtime: Runtime, peers: QueuePeers) -> None:
        self._timers = runtime.timers
        self._peers = peers
        self.may_be_member: MayBeMember = lambda _group, _member: True
        self._image = MetadataImage()
        # The queue, and who is gone: a member, or (None) the group.
        self._waiting: deque[tuple[QueueId, str | None]] = deque()
        self._is_sending = False

    def on_metadata(self, image: MetadataImage) -> None:
        self._image = image

    def release(self, group_id: str, member_id: str, topics: tuple[str, ...]) -> None:
        """Release what the member has of these topics; in a later turn."""
        if self._image.topic(QUEUES_TOPIC) is None:
            # There are no queues, and asking for one would make them.
            return
        found = [self._image.topic(name) for name in topics]
        counts = [(topic.id, len(topic.partitions)) for topic in found if topic is not None]
        self._add(group_id, counts, member_id)

    def forget(self, group_id: str, topics: tuple[tuple[TopicId, int], ...]) -> None:
        """Forget the queues of a deleted group; in a later turn."""
        if self._image.topic(QUEUES_TOPIC) is not None:
            self._add(group_id, topics, None)

    def _add(self, group_id: str, topics: Sequence[tuple[TopicId, int]], member_id: str | None) -> None:
        for topic_id, count in topics:
            if len(self._waiting) < WAITING_MAX:
                queues = (QueueId(group_id, topic_id, PartitionIndex(index)) for index in range(count))
                self._waiting.extend((queue, member_id) for queue in queues)
        if self._waiting and not self._is_sending:
            self._is_sending = True
            self._timers.soon(self._send)

    def _send(self) -> None:
        for _ in range(min(QUEUES_PER_TURN_MAX, len(self._waiting))):
            queue, member_id = self._waiting.popleft()
            # Callbacks of their own: coordinators distinguish commands that wait by them.
            if member_id is None:
                self._peers.submit(ForgetQueue(on_reply=partial(_ignore, queue), queue=queue))
            else:
                found = partial(self._found, queue, member_id)
                self._peers.submit(FindLeases(on_reply=found, queue=queue, consumer=member_id))
        self._is_sending = bool(self._waiting)
        if self._is_sending:
            self._timers.soon(self._send)

    def _found(self, queue: QueueId, member_id: str, reply: QueueReply) -> None:
        """If the member is back by now, some of the leases may be new; else all of them are old."""
        if isinstance(reply, LeasesFound) and reply.tokens:
            if self.may_be_member(queue.group_id, member_id):
                return
            release = ReleaseConsumer(
                on_reply=partial(_ignore, queue), queue=queue, consumer=member_id, tokens=reply.tokens
            )
            self._peers.submit(release)


def _ignore(_queue: QueueId, _reply: object) -> None:
    """There may be no such queue; and leases that could not be released end."""
