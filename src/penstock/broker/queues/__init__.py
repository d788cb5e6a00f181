"""The queue view of a topic: what is between consumers, the log and the coordinators of queues.

    queue_view             receive records, and settle what was received; on whichever node is asked
    leader_queue           one queue at the leader of its data partition: offers, leases, waiting consumers
    record_reader          committed records of a log, decoded
    dead_letters           moves what queues have given up to the dead-letter topic
    redrive                moves dead letters back
    move_transaction       the transaction of either move
    transactional_commits  acknowledgements inside transactions
    peers                  what the nodes ask of each other about queues
    command_codec          commands and replies as bytes

    QueueView ── receive ──► LeaderQueue ── OfferRecords, AcquireRecords ──► QueueService (any node)
       │                        └── RecordReader ── values of what was leased
       └─ acknowledge, release, … ─────────────────────────────────────────► QueueService

Nothing here is replicated: what must survive is in the data partition's log, and in `__queue_state`.

Left out: servers. Nothing that a client can send reaches a queue yet.
"""
