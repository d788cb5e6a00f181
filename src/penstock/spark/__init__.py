"""The data pipeline: topics into tables and back, on Spark, from a pip install and no JAR.

    producers ──> metrics.inbound ──> parse, check, drop repeats ──> table raw ──> windows ──> table rollup
                                              |                                         └────> metrics.rollup
                                              └──> metrics.inbound.dlq

    reading         record batches of a topic as Arrow batches
    source          `format("penstock")`: which offsets a batch covers, and how they are split into tasks
    sink            Arrow batches into a topic
    kafka_options   the official connector's `kafka.*` options as librdkafka's settings
    formats         values decoded into columns
    lake            Arrow batches into a table and out of it, exactly once
    metrics         the metrics pipeline
    jobs            backfill, compaction, audit
    generator       metrics as a fleet would send them
    run             `penstock pipeline`: a session with the right Java, progress, status, a clean stop
    demo            the pipeline's half of `penstock demo`
    errors          what can go wrong, as one line each

Spark runs this code in processes of its own, on machines of its own, so the broker is reached
over the wire and in no other way: everything works against any Kafka broker. What a task needs
travels with it as a small value; what decides whether a batch counts is one commit made by the
driver, keyed by query and batch, so that a batch may be tried as often as machines fail.

What is written to a table is there exactly once, and so is what is written to a topic of a broker
that has batch commit (`sink`). With any other broker it is there at least once, with a natural key
that identifies repeats.
"""
