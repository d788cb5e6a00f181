"""What one asks of a cluster beyond Kafka's own requests.

Kafka has no request that keeps a broker empty, so that is a setting of the broker here
(`draining`), which any administration client can change too.

Left out: moves, elections and the quorum. Those are requests of Kafka's own, which `raw` sends as
they stand.
"""

from penstock.client.cluster.draining import change_drain, drain, is_drained

__all__ = ["drain", "change_drain", "is_drained"]
