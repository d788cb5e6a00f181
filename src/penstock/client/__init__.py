"""Clients of any Kafka broker, for programs, commands and Spark: confluent-kafka, and one plain socket.

For programs, `Producer` and `Consumer`:

    sync_producer   records to topics, each with a future
    sync_consumer   records from topics, and how far they were processed
    consumed_offsets    what of that was handed out, processed and committed
    async_producer  the same for asyncio
    async_consumer  likewise
    transaction     records and offsets that appear together or not at all
    async_transaction   likewise
    transform       consume, transform, produce, exactly once
    worker_pool     messages handled by several threads, in order per key
    async_worker_pool   likewise by tasks
    task_queue      functions that are called later and elsewhere
    worker          what calls them
    ordered_work    what may be handled now, and up to where all is finished
    offset_store    positions in files, or in a SQL database with the results
    dead_letters    messages that nobody could handle
    properties      Kafka's settings, in either spelling
    partitioner     key hash, round-robin, sticky, or a function
    serialization   keys and values as bytes: JSON, MessagePack, Avro, Protobuf, or one's own
    record_types    the types of keys and values
    client_metrics  what clients count about themselves, for Prometheus
    message         a record that was read, and where one was stored
    errors          one class per thing that a program does about it
    backoff         waits between tries

For commands and Spark, which need less and want it fast:

    endpoint    which broker, the settings that every client shares, librdkafka's errors as one line each
    admin       topics: create, describe, change, delete; keeping a broker empty
    catalog     partitions and offsets for somebody who plans reads, and waits for a broker that is away
    producer    records to a topic: lines, or whole columns, each confirmed
    consumer    records from a topic, alone, in a group, or from one partition
    bad_batch   which batch a reader cannot get past, and why
    groups      what consumer groups have read, and their lag in records and in seconds
    group_offsets   a group's committed offsets, read and written from outside
    transactions   what is open at coordinators and in partitions, and ending it
    load        load on a broker, for measurements
    visible_batches   which batches of a Fetch response a reader sees
    cluster     an asyncio client on our own codec, for the servers and for workers
    coordinator   which broker coordinates a group or a transactional id
    connection  one socket and our own codec, for measurements and for Spark's readers

Nothing here is special to Penstock: every function works against any Kafka broker, which is
what lets `penstock bench compare` measure a peer with the same code. confluent-kafka is
imported here and nowhere else, and only when a function is called.

librdkafka blocks in C, where Ctrl-C cannot reach; every wait is therefore cut into turns of a
fraction of a second and bounded in all. Its own log lines are dropped: what matters is raised
as an error, and a command has one line to print it.

Left out: schema registries, and authentication other than what `--option` passes on to
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
from penstock.client.async_consumer import AsyncConsumer
from penstock.client.async_producer import AsyncProducer
from penstock.client.async_transaction import AsyncTransaction
from penstock.client.catalog import PATIENCE_MS, TopicCatalog, TopicInfo
from penstock.client.client_metrics import ClientMetrics
from penstock.client.consumer import (
    ConsumedRecord,
    ConsumerOptions,
    StartOffsetOutOfRange,
    TopicConsumer,
    extent,
)
from penstock.client.endpoint import BrokerUnreachable, ClientError, Disconnected, Endpoint, reach
from penstock.client.errors import (
    DeadlineExceeded,
    DeliveryFailed,
    FatalFailure,
    InvalidProperty,
    ProducerFenced,
    RequestFailed,
    TransactionAborted,
)
from penstock.client.group_offsets import GroupOffsetWriter
from penstock.client.groups import GroupAdmin, GroupDetail, GroupSummary, PartitionLag
from penstock.client.message import Delivery, Message, RawMessage, TopicPartition
from penstock.client.offset_store import FileOffsets, OffsetConflict, OffsetStore, SqlOffsets
from penstock.client.producer import (
    ANY_PARTITION,
    BulkProducer,
    BulkProducerOptions,
    OpenTransactionProducer,
    ProducerOptions,
    SendReport,
    SingleRecord,
    TopicProducer,
    settings_refused,
)
from penstock.client.serialization import (
    AvroSerde,
    BytesSerde,
    JsonSerde,
    MsgpackSerde,
    ProtobufSerde,
    Serde,
    SerializationFailed,
    StringSerde,
    serde,
)
from penstock.client.sync_consumer import Consumer
from penstock.client.sync_producer import DeliveryFuture, Producer
from penstock.client.task_queue import EnqueuedTask, QueueTask, TaskQueue, UnknownTask
from penstock.client.transaction import Transaction
from penstock.client.transform import Outgoing, transform
from penstock.client.worker import Reject, RetryLater, RunningTask, Worker, current_task
from penstock.client.worker_pool import HandlerFailed, ProcessOptions

__all__ = [
    "Producer",
    "DeliveryFuture",
    "Delivery",
    "Transaction",
    "AsyncProducer",
    "AsyncTransaction",
    "AsyncConsumer",
    "transform",
    "Outgoing",
    "TaskQueue",
    "QueueTask",
    "EnqueuedTask",
    "UnknownTask",
    "Worker",
    "Reject",
    "RetryLater",
    "RunningTask",
    "current_task",
    "Consumer",
    "Message",
    "RawMessage",
    "ClientMetrics",
    "OffsetStore",
    "FileOffsets",
    "SqlOffsets",
    "OffsetConflict",
    "TopicPartition",
    "Serde",
    "serde",
    "BytesSerde",
    "StringSerde",
    "JsonSerde",
    "MsgpackSerde",
    "AvroSerde",
    "ProtobufSerde",
    "RequestFailed",
    "DeliveryFailed",
    "TransactionAborted",
    "FatalFailure",
    "ProducerFenced",
    "DeadlineExceeded",
    "InvalidProperty",
    "SerializationFailed",
    "HandlerFailed",
    "ProcessOptions",
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
    "OpenTransactionProducer",
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
    "GroupOffsetWriter",
    "PartitionLag",
]
