"""The metrics pipeline: measurements from a topic into tables, rollups into a table and a topic.

    metrics-ingest    metrics.inbound ─> decode ─> drop repeats ─> router ─> table raw
                                                                      └────> metrics.inbound.dlq
    metrics-rollup    table raw ─> slices ─> windows ─> router ─> table rollup
                                                           └────> metrics.rollup

    configuration   the YAML file
    measurement     what a measurement is, its series, and records decoded into measurements
    rollup          slices and windows: count, sum, min, max, percentiles
    tables          columns of the two tables
    dead_letters    what is written to topics, under natural keys
    router          one sink with two outputs, the table's commit last
    queries         the two queries, what they read, and their watermark
    pipeline        all of it under one name

Two queries, since Spark gives a query one sink: what ingest has stored is what rollup reads, in the
order in which it was stored. Both have the same allowance for lateness, and rollup's watermark
follows from rows that ingest took. A row that ingest takes is newer than ingest's watermark, which
is never behind rollup's: nothing that is in the raw table can miss its window.

A repeat is a measurement with the client, series and timestamp of one that is stored already; the
first one stays. A record that is no measurement, or is older than the watermark, goes to the
dead-letter topic with its topic, partition and offset. Both tables take a batch once, whatever
happens, and so do the topics, for readers of committed records; on a broker without batch commit the topics
may get a record twice, with the same key.

Left out: headers of malformed records; changing windows or lateness under a checkpoint; and
windows that overlap or follow sessions.
"""

from penstock.spark.metrics.pipeline import PIPELINES, MetricsPipeline

__all__ = ["PIPELINES", "MetricsPipeline"]
