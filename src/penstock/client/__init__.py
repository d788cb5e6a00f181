"""A thin layer over confluent-kafka (librdkafka), for commands that talk to a broker.

    endpoint    which broker, and the settings that every client of ours shares
    errors      librdkafka's complaints as one line each
    topics      creating, describing, changing and deleting topics
    catalogue   partitions and offsets for somebody who plans reads, and waits for a broker that is away
    positions   `beginning`, `end`, an offset or a time, turned into offsets
    sending     lines to a topic, with an account of what was delivered
    bulk        whole columns of records to any topic, each confirmed
    reading     records from a topic, alone or in a group, until an end that was known before
    groups      what consumer groups have read, and how far behind they are
    lag         how far behind in seconds: the age of the first record that was not read
    cluster     keeping a broker empty
    connection  one socket and our own codec, for measurements and for Spark's readers

Nothing here is special to Penstock: every function works against any Kafka broker, which is
what lets `penstock bench compare` measure a peer with the same code. confluent-kafka is
imported here and nowhere else, and only when a function is called.

librdkafka blocks in C, where Ctrl-C cannot reach; every wait is therefore cut into turns of a
fraction of a second and bounded in all. Its own log lines are dropped: what matters comes back
as an error, and a command has one line to say it in.

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
