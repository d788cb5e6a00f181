"""Running pipelines."""
