"""What a topic's configuration says about elections."""

from collections.abc import Mapping

from penstock.core.metadata.decisions.draft import Surroundings
from penstock.core.metadata.effective import topic_value
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
        replicas = topic.replication_factor
        rules = self._known.get(replicas)
        if rules is None:
            rules = self._known[replicas] = self._work_out(topic)
        return rules

    def _work_out(self, topic: Topic) -> tuple[int, bool]:
        minimum = topic_value(self._image, topic, "min.insync.replicas", self._static)
        unclean = topic_value(self._image, topic, "unclean.leader.election.enable", self._static)
        assert isinstance(minimum, int)
        return minimum, bool(unclean)
