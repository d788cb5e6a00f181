"""Whole brokers under load: Penstock, Apache Kafka and the machine itself, in the same run.

    __main__    which measures, how often, and where the report goes
    brokers     a Penstock and a Kafka with the same promise, ready to be measured
    measures    what is measured, with the loads and scenarios of `penstock bench`
    pipelined   many small requests in flight: CPU per request
    rebalance   a group of nine that a tenth member joins
    starting    from the start of the process to the first accepted Produce
    budgets     what the figures ought to be, and the table
    sampling    where the broker's CPU time goes, by function

Each measure runs against one broker after the other, some rounds over, with dirty pages written
back in between. Noise only ever adds, so the best round counts, figure by figure; all rounds, and
the machine's load at the time, are kept in the JSON. Ratios in the same run are what to compare
across machines.

Left out: several clients on several machines, and brokers with replicas.
"""
