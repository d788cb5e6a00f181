"""Records in and out: produce, fetch, and looking offsets up.

`Producing` judges a batch and appends it; `Fetching` reads as much as a request allows, or
waits until there is enough; `Lookups` answers where things are. None of them touches a
single record unless the topic asks for it; large batches of such topics go through the
`workshop`, which keeps the order of each partition.

Left out: transactions' verification before the first append.
"""

from penstock.services.records.fetching import Fetched, Fetching, FetchLimits, Wanted
from penstock.services.records.lookups import Lookups, Moment, Position
from penstock.services.records.metrics import ProduceMetrics
from penstock.services.records.producing import Pending, PendingProduce, Placed, Producing, Results

__all__ = [
    "Producing",
    "Placed",
    "Pending",
    "PendingProduce",
    "Results",
    "ProduceMetrics",
    "Fetching",
    "FetchLimits",
    "Wanted",
    "Fetched",
    "Lookups",
    "Moment",
    "Position",
]
