"""Penstock: a distributed message queue you `pip install`.

It speaks the Kafka protocol, works as a work queue on the same topics, and feeds
Spark. `ARCHITECTURE.md` has the layer picture; each package's own docstring is its
essay.
"""

__version__ = "0.1.0"
