"""Use cases: what a node does for clients, whichever server they are connected to.

    produce, fetch, list_offsets   records in and out
    lease                          until when this node may answer for what it leads
    topics, configs, producer_ids  what clients manage through the controller
    read_replicas                  which replica serves a consumer that names its rack
    telemetry                      the metrics that clients push
    partitions/                    the logs of this node, and its role in each
    replication/                   keeping followers' logs equal to their leader's
    coordinator/                   replicated machines on partitions: groups
    cluster/                       membership, the controller and its Raft quorum

Use cases coordinate machines from `core` and logs from `storage`. They see the world only
through the runtime port and a disk, call back instead of waiting, and return expected errors as
values, so that the same code runs on sockets and inside the simulator.
"""
