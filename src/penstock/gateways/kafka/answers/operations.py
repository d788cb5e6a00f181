"""What a caller may do, as a field of bits (KIP-430)."""

from penstock.gateways.kafka.call import Call
from penstock.security import AclOperation, Resource, ResourceType

# What is answered when nobody asked.
NOT_ASKED = -(2**31)
CLUSTER = Resource(ResourceType.CLUSTER, "kafka-cluster")
# The position of each operation's bit: the number that access control lists give it.
_BITS = {
    AclOperation.READ: 3,
    AclOperation.WRITE: 4,
    AclOperation.CREATE: 5,
    AclOperation.DELETE: 6,
    AclOperation.ALTER: 7,
    AclOperation.DESCRIBE: 8,
    AclOperation.CLUSTER_ACTION: 9,
    AclOperation.DESCRIBE_CONFIGS: 10,
    AclOperation.ALTER_CONFIGS: 11,
    AclOperation.IDEMPOTENT_WRITE: 12,
}
# What can be done to each kind of resource.
_POSSIBLE = {
    ResourceType.TOPIC: (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        AclOperation.READ,
        AclOperation.DELETE,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        AclOperation.CREATE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.CLUSTER_ACTION,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
        AclOperation.IDEMPOTENT_WRITE,
    ),
    ResourceType.TRANSACTIONAL_ID: (AclOperation.WRITE, AclOperation.DESCRIBE),
}


def topic_resource(name: str) -> Resource:
    return Resource(ResourceType.TOPIC, name)


def authorized_operations(call: Call, resource: Resource) -> int:
    """Everything that the caller may do to a resource."""
    bits = 0
    for operation in _POSSIBLE[resource.kind]:
        if call.authorize(operation, resource):
            bits |= 1 << _BITS[operation]
    return bits


def may_create(call: Call, name: str) -> bool:
    """Whether the caller may create the topic: because of it, or because they may create any."""
    return call.authorize(AclOperation.CREATE, CLUSTER) or call.authorize(
        AclOperation.CREATE, topic_resource(name)
    )
