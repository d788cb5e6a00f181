"""Small files of the tables put together, and files that nobody needs removed."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.spark.jobs.settings import configured
from penstock.spark.metrics.configuration import CompactSection, MetricsConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class CompactJob:
    """Runs beside the pipeline, which neither stops nor reads anything twice for it."""

    summary = "put small files of the tables together, and remove old ones"

    def configure(self, path: Path | None, overrides: Mapping[str, str]) -> MetricsConfig:
        return configured("compact", CompactSection, path, overrides)

    def run(self, spark: "SparkSession", config: MetricsConfig) -> Mapping[str, Any]:  # noqa: ARG002
        """Per table: files before and after, and how many were removed for good."""
        paths = {"raw": config.raw_table, "rollup": config.rollup_table}
        return {name: _compacted(paths[name], config.compact) for name in config.compact.tables}


def _compacted(path: str, asked: CompactSection) -> dict[str, Any]:
    from penstock.spark.lake import compact, vacuum

    done = compact(path, target_file_bytes=asked.file_bytes)
    report: dict[str, Any] = {
        "version": done.version,
        "files_put_together": done.files_removed,
        "files_made_of_them": done.files_added,
    }
    if asked.vacuum:
        removed = vacuum(path, retention_hours=asked.retention_hours, dry_run=False)
        report["old_files_removed"] = len(removed.files)
    return report
