"""An asyncio client on our own codec: for the REST, gRPC and WebSocket servers, and for workers.

    errors      ClusterError: a Kafka error code, a sentence, and whether to try again
    pipeline    one connection: requests ahead of their responses
    security    TLS of connections, and as whom or for whom they log in
    client      ClusterClient: leaders, coordinators, topics; any request to whom it belongs
    publisher   Publisher: records to topics, many callers sharing few requests
    reader      LogReader: records of a partition by offset
    queues      QueueClient: topics as work queues, one method per API
    membership  GroupMembership: members of groups, by their ids alone

librdkafka has no call for the queue APIs and needs threads of its own. This client is a few thousand
lines less and speaks exactly what `core.protocol` has. Everything here belongs to one event loop.

Left out: OAUTHBEARER, which librdkafka has; classic consumer groups.
"""

from penstock.client.cluster.client import ClusterClient, ClusterPartition, ClusterTopic
from penstock.client.cluster.errors import ClusterError, ConnectionLost, QuotaExceeded
from penstock.client.cluster.membership import LOG, QUEUE, GroupMembership, Membership, MembershipMode
from penstock.client.cluster.publisher import OutgoingRecord, Publisher, PublishResult, RecordPosition
from penstock.client.cluster.queues import AckTransaction, DelayedPublish, QueueClient
from penstock.client.cluster.reader import LogReader, ReadRecords
from penstock.client.cluster.security import ClusterSecurity, cluster_security

__all__ = [
    "ClusterClient",
    "ClusterSecurity",
    "cluster_security",
    "ClusterTopic",
    "ClusterPartition",
    "ClusterError",
    "ConnectionLost",
    "QuotaExceeded",
    "Publisher",
    "OutgoingRecord",
    "RecordPosition",
    "PublishResult",
    "LogReader",
    "ReadRecords",
    "QueueClient",
    "DelayedPublish",
    "AckTransaction",
    "GroupMembership",
    "Membership",
    "MembershipMode",
    "QUEUE",
    "LOG",
]
