"""The first client of a cluster: makes the topic that all others work with."""

from functools import partial

from penstock.core.model import Refused, Why
from penstock.gateways.kafka.backend import Backend
from penstock.services.topics import NewTopic
from penstock.simulation.cluster.clients.client import Client, Nodes
from penstock.simulation.cluster.door import Changed, Door, Replies
from penstock.simulation.cluster.options import TOPIC, ClusterOptions


class Founder(Client):
    """Asks until the topic is there, with as many replicas as it shall have."""

    def __init__(self, nodes: Nodes, options: ClusterOptions) -> None:
        super().__init__(nodes, "founder")
        self._options = options
        self.finished = False

    def start(self) -> None:
        self.ask(self.any_node(), partial(Door.change, act=self._create), self._created)

    def _create(self, backend: Backend, done: Replies) -> None:
        options = self._options
        minimum = "2" if options.replicas > 2 else "1"
        topic = NewTopic(
            TOPIC,
            options.partitions,
            options.replicas,
            configs=(("min.insync.replicas", minimum),),
        )
        backend.topics.create([topic], done, timeout_ms=1_000)

    def _created(self, answer: object) -> None:
        reply = answer.reply if isinstance(answer, Changed) else None
        exists = isinstance(reply, Refused) and reply.why is Why.TOPIC_EXISTS
        if reply is not None and (exists or not isinstance(reply, Refused)):
            self.finished = True
        else:
            self.after_ms(self.backoff_ms(), self.start)
