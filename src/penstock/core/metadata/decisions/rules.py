"""What a topic's configuration says about elections."""

from collections.abc import Iterable, Mapping

from penstock.core.metadata.decisions.draft import Draft, Surroundings
from penstock.core.metadata.decisions.leadership import elected, settled, with_epochs, with_isr
from penstock.core.metadata.effective import topic_value
from penstock.core.metadata.facts import PartitionChanged
from penstock.core.metadata.image import MetadataImage
from penstock.core.metadata.state import ResourceKind, Topic


class ElectionRules:
    """The minimum ISR of topics, and whether their leaders may miss records.

    A broker that comes or goes touches all its topics, and most of them have the same
    configuration: none. The rules of those are worked out once per replica count.
    """

    __slots__ = ("_image", "_known", "_static")

    def __init__(self, image: MetadataImage, around: Surroundings) -> None:
        self._image = image
        self._static: Mapping[str, str] = around.static
        self._known: dict[int, tuple[int, bool]] = {}

    def of(self, topic: Topic) -> tuple[int, bool]:
        if self._image.config(ResourceKind.TOPIC, topic.name):
            return self._work_out(topic)
        replicas = topic.replicas_to_rely_on
        rules = self._known.get(replicas)
        if rules is None:
            rules = self._known[replicas] = self._work_out(topic)
        return rules

    def _work_out(self, topic: Topic) -> tuple[int, bool]:
        minimum = topic_value(self._image, topic, "min.insync.replicas", self._static)
        unclean = topic_value(self._image, topic, "unclean.leader.election.enable", self._static)
        assert isinstance(minimum, int)
        return minimum, bool(unclean)


def follow_rules(draft: Draft, topics: Iterable[Topic], around: Surroundings) -> None:
    """Let partitions follow another minimum ISR, or another answer about unclean leaders.

    With a lower minimum the ISR alone may commit again, so that the ELR is no longer sure
    to hold everything: it must not outlive the change.
    """
    rules = ElectionRules(draft.image, around)
    for topic in topics:
        minimum, unclean = rules.of(topic)
        for partition in topic.partitions:
            after = with_isr(partition, partition.isr, minimum)
            after = elected(after, draft.image, minimum, unclean=unclean)
            changed = with_epochs(partition, settled(after, draft.image, minimum))
            if changed is not None:
                draft.add(PartitionChanged(topic.id, changed))
