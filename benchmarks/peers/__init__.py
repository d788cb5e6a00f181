"""Others' software, run beside ours so that a figure has something to be compared with.

    maven             jars from Maven Central, kept in a cache outside the repository
    kafka             one KRaft node of Apache Kafka on free ports and a throw-away directory
    spark_connector   Spark's own connector for Kafka, the peer of `format("penstock")`

A peer that cannot be had (no Java, no Maven, no way to Maven Central) raises `PeerUnavailable`
with the reason; a comparison prints it and goes on without.

Left out: peers with several nodes, and tuning: a peer runs with its defaults.
"""
