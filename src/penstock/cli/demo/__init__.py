"""`penstock demo`: a broker at work, from nothing to a table of what happened.

    series ──> blocks ──> stock client ──> broker (a child process) ──> consumer group ──> account
       |                                                                                     |
       └────────────── the demo's own account of what it sent ───────── must be the same ────┘

The broker is `penstock up` in a process of its own, with free ports, a throw-away data
directory and the default settings: acknowledged means on disk. The client is confluent-kafka,
as anybody would use it. What comes back is compared record by record, in the order of each
partition, with what was sent; a difference ends the demo with exit code 1.

Measurements are made up in blocks, and the clock runs only while a block is on its way: from
the first record handed to the client until the last one is acknowledged. What is shown is the
broker and the client, not the generator.

Left out: the Spark pipeline, which will read the same topic.
"""
