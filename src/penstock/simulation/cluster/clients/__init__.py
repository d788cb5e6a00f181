"""The clients of a simulated cluster, each a process on a host of its own.

    connections   requests and answers in order, or not at all; what meets a cut arrives late
    client        asking nodes, losing patience, remembering who leads
    producers     those who lose nothing, and those who may
    consumers     those who assign themselves
    members       those who read as a group
    admin         those who change the metadata
    founder       the first of all

A client has no view of a node but through its door. It acts as the stock Kafka clients do where
that matters for what is promised: sequences of idempotent producers are sent again unchanged
and in order, leaders of older epochs than known are not believed, and a member that does not
know what became of its commit does not commit again in that generation.

Left out: batching, and waiting times of real clients; theirs are shorter.
"""
