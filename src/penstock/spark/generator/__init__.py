"""Metrics as a fleet of hosts would send them, with everything that goes wrong on the way.

    records     the plan, valid and malformed records in the order of sending, and the account of them
    expected    every valid point in a file, and what a pipeline should make of those points
    command     `penstock generate`: records into a topic at a rate, until it is enough

A record is valid when its value is one JSON object with

    name        a string that is not empty
    value       a finite number
    labels      an object whose values are strings; absent is the same as empty
    timestamp   a whole number of ms since 1970, at least 0 and less than 4,102,444,800,000 (2100)
    client      a string that is not empty

Other keys are allowed. A pipeline may also refuse a timestamp that is far ahead of the record's own
time (the metrics pipeline: two days). Points that end now are not, nor is the closing record a day
after them; a stream without a count begins now, and sent faster than its time passes gets there.
Anything else is malformed and belongs to the dead letters. Two records with the same client, name,
labels and timestamp are the same point; the generator repeats only whole records, byte by byte.

Points are made in the order of their time: in every interval each series has one, at a moment
of its own. A late point is delayed and sent when the stream is up to `late_ms_max` further
in time, never more; a repeated one comes again at once or as late as that. So a pipeline whose
watermark allows `late_ms_max` loses nothing, provided that it reads partitions evenly: what one
partition is ahead of another comes on top.

The same plan with the same seed makes the same records, to the byte. The account is kept here,
apart from any broker, so that what arrives can be compared by count and by content. A closing
record, far ahead in time, ends every window that is still open; it must be read after all the
others, so it is sent only when asked for.

Left out: protocols other than Kafka's.
"""

from penstock.spark.generator.command import GeneratorLimits, GeneratorResult, send_closing, send_metrics
from penstock.spark.generator.expected import (
    ExpectedRollup,
    Point,
    open_points,
    percentile,
    read_points,
    rollups,
)
from penstock.spark.generator.records import (
    GeneratedPoint,
    GeneratorAccount,
    GeneratorPlan,
    MetricStream,
    content_hash,
    point_hash,
)

__all__ = [
    "GeneratorPlan",
    "MetricStream",
    "GeneratedPoint",
    "GeneratorAccount",
    "point_hash",
    "content_hash",
    "Point",
    "open_points",
    "read_points",
    "ExpectedRollup",
    "rollups",
    "percentile",
    "send_metrics",
    "send_closing",
    "GeneratorLimits",
    "GeneratorResult",
]
