"""Topics as clients manage them: create, delete, grow, configure, move; and ids for producers.

Every use case turns a request into commands for the controller and calls back with one
answer per item, in the order of the items. What changes logs (`create`, `add_partitions`,
`delete`) answers when this node's logs are there or gone, or when the time is up: whether
the metadata says so is certain by then, the logs follow.

`Topics.auto_create` is for clients that ask for a topic which does not exist: those who ask
while it is being created share one command. The internal topics are made the same way when
they are first needed, with the configuration that their owners count on.

`reassign` and `elect` answer when the cluster has decided: a move goes on for as long as the new
replicas take to catch up, and the metadata shows how far it is.

Left out: quotas on how fast topics may be created.
"""

from penstock.services.topics.configs import ConfigChanges, Configs, ConfigValues
from penstock.services.topics.internal import internal_topic
from penstock.services.topics.producer_ids import ProducerIds
from penstock.services.topics.topics import Topics
from penstock.services.topics.wanted import MorePartitions, NewTopic

__all__ = [
    "Topics",
    "NewTopic",
    "MorePartitions",
    "Configs",
    "ConfigValues",
    "ConfigChanges",
    "ProducerIds",
    "internal_topic",
]
