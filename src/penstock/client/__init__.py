"""Clients of any Kafka broker, for commands and for Spark: confluent-kafka, and one plain socket.

    endpoint    which broker, the settings that every client shares, librdkafka's errors as one line each
    admin       topics: create, describe, change, delete; keeping a broker empty
    catalog     partitions and offsets for somebody who plans reads, and waits for a broker that is away
    producer    records to a topic: lines, or whole columns, each confirmed
    consumer    records from a topic, alone, in a group, or from one partition
    groups      what consumer groups have read, and their lag in records and in seconds
    load        load on a broker, for measurements
    connection  one socket and our own codec, for measurements and for Spark's readers

Nothing here is special to Penstock: every function works against any Kafka broker, which is
what lets `penstock bench compare` measure a peer with the same code. confluent-kafka is
imported here and nowhere else, and only when a function is called.

librdkafka blocks in C, where Ctrl-C cannot reach; every wait is therefore cut into turns of a
fraction of a second and bounded in all. Its own log lines are dropped: what matters is raised
as an error, and a command has one line to print it.

Left out: transactions, schemas, and authentication other than what `--option` passes on to
librdkafka.
"""

from penstock.client.admin import (
    EARLIEST,
    LATEST,
    OffsetSpec,
    PartitionDetail,
    TopicAdmin,
    TopicDetail,
    TopicSummary,
    parse_position,
)
from penstock.client.catalog import PATIENCE_MS, TopicCatalog, TopicInfo
from penstock.client.consumer import (
    ConsumedRecord,
    ConsumerOptions,
    StartOffsetOutOfRange,
    TopicConsumer,
    extent,
)
from penstock.client.endpoint import BrokerUnreachable, ClientError, Disconnected, Endpoint, reach
from penstock.client.groups import GroupAdmin, GroupDetail, GroupSummary, PartitionLag
from penstock.client.producer import (
    ANY_PARTITION,
    BulkProducer,
    BulkProducerOptions,
    ProducerOptions,
    SendReport,
    SingleRecord,
    TopicProducer,
    settings_refused,
)

__all__ = [
    "Endpoint",
    "reach",
    "ClientError",
    "Disconnected",
    "BrokerUnreachable",
    "TopicAdmin",
    "TopicSummary",
    "TopicDetail",
    "PartitionDetail",
    "TopicCatalog",
    "TopicInfo",
    "PATIENCE_MS",
    "EARLIEST",
    "LATEST",
    "OffsetSpec",
    "parse_position",
    "TopicProducer",
    "ProducerOptions",
    "SendReport",
    "BulkProducer",
    "BulkProducerOptions",
    "SingleRecord",
    "ANY_PARTITION",
    "settings_refused",
    "TopicConsumer",
    "ConsumerOptions",
    "StartOffsetOutOfRange",
    "extent",
    "ConsumedRecord",
    "GroupAdmin",
    "GroupSummary",
    "GroupDetail",
    "PartitionLag",
]
