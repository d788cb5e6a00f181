"""A job's configuration, from the pipeline's file and from the command line."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from penstock.spark.metrics.configuration import MetricsConfig, MetricsSection, load


def configured(
    section: str, shape: type[MetricsSection], path: Path | None, overrides: Mapping[str, str]
) -> MetricsConfig:
    """Read file and overrides; a key of the job's own section may come without the section's name."""
    own = {field.name for field in msgspec.structs.fields(shape)}
    given = {(f"{section}.{key}" if key in own else key): value for key, value in overrides.items()}
    return load(MetricsConfig, path, given)
