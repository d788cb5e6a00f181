"""Benchmarks of the data pipeline; each module is a program of its own.

decoding     record batches to Arrow columns, per core, without a broker
leader_kill  how long a query stands still when the leader of its partition is killed
"""
