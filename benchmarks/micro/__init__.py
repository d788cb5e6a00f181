"""Micro-benchmarks of the ground: codec, batch check, append, index lookup, recovery, group commit.

Each module has `run() -> dict[str, float]`; a figure's unit is the end of its name (`_us`, `_mb_s`, `_ratio`,
`_peak_bytes`). `python -m benchmarks.micro` runs them all and writes one JSON file.
"""
