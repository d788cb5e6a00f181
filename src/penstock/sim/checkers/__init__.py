"""Checkers: each compares what clients saw with what is left on disk, and names what is wrong.

A checker knows one guarantee and nothing of how the run came about, so that the same
code checks simulated runs, clusters of processes and crash tests of a single node:

    log              what producers and consumers of a partition saw
    log_start        deletions from the front: as much as was asked for, and for good
    watermarks       leaders of a partition: one per epoch, and none lacks what another showed
    eligibility      whoever may be elected, of a partition or of the quorum, has what was promised
    freshness        no answer is older than what was known when it was asked for
    replicas         the copies of a partition are the same bytes
    groups           committed offsets, generations, and members that were fenced
    consumer_groups  who has which partition, epochs, and members that were fenced (KIP-848)
    transactions     all or nothing, read when committed, ended in the end, and only by the newest producer
    batches          transactions that are committed together: all of an attempt or none, and one attempt
    queues           one lease at a time, nothing lost, nothing early, dead letters at the limit
    metadata         what was acknowledged is in every later image
    quorum           the properties of Raft
    voters           who votes is what was acknowledged last
    durability       one log across power cuts

Checkers are called in the order in which things happened. Most anomalies are known at
once and put on a list; those that need the whole history come out of a function at the end.
An anomaly is a sentence whose first words, up to the colon, say which kind it is.
"""
