"""How large a cluster may grow: 300 brokers and 50,000 partitions, on the metadata machine and its host.

    python -m benchmarks.scale [--brokers N] [--topics N] [--partitions N] [--members N] [--output FILE]

    image      memory, facts, snapshot and replay of the metadata alone
    changes    what the usual events cost to decide, and how many facts they are
    quorum     the production quorum in virtual time: a controller lost, a broker lost, a restart
    fanout     several hundred members: joining, idling, one change told to everybody
    gateway    Metadata answers as clients get them

Times are CPU time of one core unless their name says `virtual`: those are what the simulated
clocks, network and disks took, with computing for nothing. What really passes is at most the sum.

Left out: records. What the replication of so many partitions costs is the business of
`benchmarks.micro` (one round) and `benchmarks.cluster` (three brokers).
"""
