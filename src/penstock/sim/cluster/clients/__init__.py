"""The clients of a simulated cluster, each a process on a host of its own.

    connection       requests in Kafka's bytes, several in flight; responses in order, or not at all
    client           requests to nodes, timeouts, known leaders, protocol versions
    producers        idempotent ones, which lose nothing, and at-most-once ones
    consumers        those who assign themselves
    members          those who read as a group
    consumer_members those of groups that speak the new protocol (KIP-848)
    transactions     those who write in transactions, and those who read what is committed
    transformers     those who read as a group and write in transactions
    sinks            tasks that write in transactions, and drivers that commit them in batches
    queues           those who write what queues have to do, and their consumers
    admin            those who change the metadata
    master_keys      those who rotate master keys, and take old ones away
    access           those who log in as users, and those who change what users may
    deletions        those who delete records
    reassignments    those who move partitions
    voters           those who change the metadata quorum

A client has no view of a node but through its Kafka listener. It acts as the stock Kafka clients do
where that matters for the guarantees: sequences of idempotent producers are sent again unchanged
and in order, leaders of older epochs than known are ignored, and a member that does not
know what became of its commit does not commit again in that generation. Most speak the newest
version of every API, some the oldest, some any.

A request may come with an observer, which is called when the node writes the response: what a leader
says goes to the checkers when it is written, whether or not the response arrives.

Left out: batching, and the timeouts of real clients; these are shorter. Groups whose members speak both
group protocols.
"""
