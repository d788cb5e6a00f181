"""The metrics pipeline."""
