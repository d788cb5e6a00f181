"""Work beside the metrics pipeline that has an end.

    backfill    rows of the raw table into a topic, under the keys they had
    compact     small files put together, old ones removed
    audit       whether every record of the topic is where it belongs, once
    settings    the keys of a job, with and without its name before them

Jobs read the pipeline's own file: `penstock pipeline run audit --config metrics.yaml`. A job's keys
stand in a section of its name, and on the command line the name may be left out: `--set topic=t`.

Left out: schedules. A job runs when somebody starts it: cron, systemd, Kubernetes.
"""

from collections.abc import Mapping

from penstock.spark.jobs.audit import AuditJob
from penstock.spark.jobs.backfill import BackfillJob
from penstock.spark.jobs.compact import CompactJob
from penstock.spark.run.registry import BatchJob

JOBS: Mapping[str, BatchJob] = {"backfill": BackfillJob(), "compact": CompactJob(), "audit": AuditJob()}

__all__ = ["JOBS", "AuditJob", "BackfillJob", "CompactJob"]
