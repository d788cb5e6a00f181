"""Finding the partition a request names, or the reason why it is not served here."""

from penstock.broker.partitions import LeaderPartition
from penstock.core.model import Refused, Why
from penstock.gateways.kafka.call import Call
from penstock.security import AclOperation, Resource, ResourceType

UNKNOWN = Refused(Why.UNKNOWN_TOPIC)
NOT_HERE = Refused(Why.NOT_LEADER)
NOT_ALLOWED = Refused(Why.NOT_AUTHORIZED)


def partition_of(call: Call, topic: str, index: int, operation: AclOperation) -> LeaderPartition | Refused:
    """The partition, if this node leads it and the caller may do this to it."""
    if call.gate is not None and not call.authorize(operation, Resource(ResourceType.TOPIC, topic)):
        return NOT_ALLOWED
    backend = call.backend
    partition = backend.partitions.led_by_name.get((topic, index))
    if partition is not None:
        return partition
    # Known to the cluster but led elsewhere, or its log is still being made: worth another try.
    return UNKNOWN if backend.controller.image.partition(topic, index) is None else NOT_HERE
