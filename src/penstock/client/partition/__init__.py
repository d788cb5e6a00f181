"""One partition from one offset on, through librdkafka: no group, no reset, nothing skipped unseen.

    consumer    an assignment, and what came of it: records, the end of the log, or a refusal

librdkafka would start elsewhere when an offset is gone; here that is a refusal like any other, and
the caller decides. It also does not say which offsets held markers or aborted records: whoever waits
for an offset goes by the end of the log that is reported when it is reached.

Left out: what a refusal means, and how long to wait.
"""

from penstock.client.partition.consumer import Came, PartitionConsumer, Row

__all__ = ["PartitionConsumer", "Came", "Row"]
