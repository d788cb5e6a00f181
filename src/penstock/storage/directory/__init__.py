"""One data directory: whose it is, how it was left, and what lies in it.

    <data-dir>/meta/format          the layout's version; written last when a directory is made
    <data-dir>/meta/directory-id    who this directory is: a voter is a node plus a directory
    <data-dir>/meta/node-id         the node whose directory it is, from its first start on
    <data-dir>/meta/cluster-id      the cluster it belongs to, once it has joined one
    <data-dir>/meta/clean           only while the node is stopped in order: its last broker epoch
    <data-dir>/meta/replicas/       an empty file for every partition that a log was made for
    <data-dir>/meta/lock            held while a node is using the directory
    <data-dir>/logs/<topic>/<n>/    partitions, each naming its topic id
    <data-dir>/set-aside/           partitions whose topic nobody knows: moved here, never deleted

The identity is durable before anybody can use it, and is never made anew over logs that
exist: a directory that lost its `meta` is damaged, not empty. The clean marker is removed,
durably, before the first write of a new life, so that it can only ever tell the truth.

Left out: what else lives in `meta` (the Raft log, its snapshots and the ballot) belongs to
the quorum; the logs belong to `storage.log`; throwing away what was set aside is up to an
operator.
"""

from penstock.storage.directory.created_replicas import CreatedReplicas, ReplicaKey
from penstock.storage.directory.data_directory import FORMAT, DataDirectory
from penstock.storage.directory.errors import DirectoryDamaged, FormatTooNew, WrongCluster, WrongNode
from penstock.storage.directory.partitions import LOGS, PartitionDirectory, partition_path

__all__ = [
    "DataDirectory",
    "PartitionDirectory",
    "CreatedReplicas",
    "ReplicaKey",
    "partition_path",
    "LOGS",
    "FORMAT",
    "FormatTooNew",
    "WrongCluster",
    "WrongNode",
    "DirectoryDamaged",
]
