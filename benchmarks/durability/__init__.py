"""What durability costs, and what it keeps: with real processes, beside another tree and Apache Kafka.

    python -m benchmarks.durability [--only NAME …] [--base CHECKOUT] [--json FILE] [--seconds N]

    __main__    which measures, how often, the table and the JSON
    sides       the nodes that are compared: this tree's, another tree's, Kafka's
    spread      small batches to all partitions in turn, many in flight
    measures    partitions, sync-cost, depth-1, end-to-end
    recovery    kill -9 under load, the time to the next accepted write, and every record after it

The sides of a measure take turns, round by round, so that they share the machine's good and bad
moments; what is reported are medians and their ratios. CPU is that of the broker's processes with
their helpers, divided by messages. A message is one record of 100 bytes in a batch of its own,
unless it says otherwise. Kafka runs as it comes, which is without a sync.

Left out: CPU that kernel threads spend on writing back and on the file system's own journal, since it
belongs to no process; clients on other machines, and Kafka with replicas (`benchmarks.transactions` has it).
"""
