"""The pipeline's half of `penstock demo`: metrics through Spark into tables, and a judgement.

    generator ──> metrics.inbound ──> penstock pipeline run metrics ──> tables, topics
        |                             (a process of its own)                  |
        └──> its own account, and every point in a file ──> exactness <───────┘

    story       one thing after the other
    following   the pipeline as a process: what it says, and its end
    exactness   tables and topics against the generator's own account
    report      the table of what happened
    plot        the rollups as a picture

The pipeline is the command that anybody would type. While it starts, the generator sends; some of
what it sends is late, repeated or malformed. When the broker says that the group has read
everything, a closing record a day ahead in time ends every window, and the pipeline is told
to stop. Then the tables are read by delta-rs and the topics by a stock client, without Spark.

The command line starts the broker and hands over its address: nothing here imports a node.

Left out: kills and restarts in the middle, which the tests of the pipeline are about.
"""

from penstock.pipeline.demo.story import tell

__all__ = ["tell"]
