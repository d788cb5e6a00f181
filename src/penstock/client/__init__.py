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

from penstock.client.bulk import ANY_PARTITION, BulkOptions, BulkSender, LoneRecord, settings_refused
from penstock.client.catalogue import PATIENCE_MS, Catalogue, TopicShape
from penstock.client.endpoint import Endpoint, reach
from penstock.client.errors import BrokerUnreachable, ClientError, Disconnected
from penstock.client.groups import GroupDetail, Groups, GroupSummary, PartitionLag
from penstock.client.offsets import EARLIEST, LATEST
from penstock.client.positions import Position, parse_position
from penstock.client.reading import OffsetOutOfRange, Read, Reader, ReaderOptions, extent
from penstock.client.sending import Sender, SenderOptions, Sent
from penstock.client.topics import PartitionDetail, TopicDetail, Topics, TopicSummary

__all__ = [
    "Endpoint",
    "reach",
    "ClientError",
    "Disconnected",
    "BrokerUnreachable",
    "Topics",
    "TopicSummary",
    "TopicDetail",
    "PartitionDetail",
    "Catalogue",
    "TopicShape",
    "PATIENCE_MS",
    "EARLIEST",
    "LATEST",
    "Position",
    "parse_position",
    "Sender",
    "SenderOptions",
    "Sent",
    "BulkSender",
    "BulkOptions",
    "LoneRecord",
    "ANY_PARTITION",
    "settings_refused",
    "Reader",
    "ReaderOptions",
    "OffsetOutOfRange",
    "extent",
    "Read",
    "Groups",
    "GroupSummary",
    "GroupDetail",
    "PartitionLag",
]
