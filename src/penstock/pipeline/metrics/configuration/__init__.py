"""What the metrics pipeline and the jobs beside it can be told, and how a YAML file tells them.

    shape       the keys, their types and their defaults
    durations   lengths of time as people write them
    loading     file, environment and command line put together; one clear line about what is wrong

Every scalar of the file is read as text, and the type of its key decides what the text means.
`${NAME:default}` is replaced from the environment. A key that is not known is an error which
names it, with the nearest one that is.

Left out: changing a running pipeline. What a checkpoint depends on cannot change under it at all.
"""

from penstock.pipeline.metrics.configuration.durations import Duration
from penstock.pipeline.metrics.configuration.loading import load
from penstock.pipeline.metrics.configuration.shape import (
    Audit,
    Backfill,
    Compact,
    Groups,
    Lake,
    MetricsConfig,
    Percentiles,
    Section,
    Topics,
)

__all__ = [
    "MetricsConfig",
    "Topics",
    "Lake",
    "Percentiles",
    "Groups",
    "Backfill",
    "Compact",
    "Audit",
    "Section",
    "Duration",
    "load",
]
