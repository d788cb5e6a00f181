"""What a caller may do, as a field of bits (KIP-430)."""

from penstock.gateways.kafka.call import Call
from penstock.security import Operation, Resource, ResourceKind

# What is answered when nobody asked.
NOT_ASKED = -(2**31)
CLUSTER = Resource(ResourceKind.CLUSTER, "kafka-cluster")
# The position of each operation's bit: the number that access control lists give it.
_BITS = {
    Operation.READ: 3,
    Operation.WRITE: 4,
    Operation.CREATE: 5,
    Operation.DELETE: 6,
    Operation.ALTER: 7,
    Operation.DESCRIBE: 8,
    Operation.CLUSTER_ACTION: 9,
    Operation.DESCRIBE_CONFIGS: 10,
    Operation.ALTER_CONFIGS: 11,
    Operation.IDEMPOTENT_WRITE: 12,
}
# What can be done to each kind of resource.
_POSSIBLE = {
    ResourceKind.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceKind.GROUP: (
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceKind.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
    ResourceKind.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE),
}


def topic_resource(name: str) -> Resource:
    return Resource(ResourceKind.TOPIC, name)


def authorized_operations(call: Call, resource: Resource) -> int:
    """Everything that the caller may do to a resource."""
    bits = 0
    for operation in _POSSIBLE[resource.kind]:
        if call.authorize(operation, resource):
            bits |= 1 << _BITS[operation]
    return bits


def may_create(call: Call, name: str) -> bool:
    """Whether the caller may create the topic: because of it, or because they may create any."""
    return call.authorize(Operation.CREATE, CLUSTER) or call.authorize(Operation.CREATE, topic_resource(name))
