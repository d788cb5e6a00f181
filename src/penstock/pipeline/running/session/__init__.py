"""A Spark session that works from a pip install, on a laptop as on a cluster.

    java        which Java: the machine's own, or the one from PyPI
    defaults    what a session is set to unless somebody says otherwise
    opening     starting it, with everything that its processes print in one file

On this machine Spark binds to loopback alone, and its workers are the Python that runs us: they
find what we find. Workers on other machines need `penstock[spark]` of the same version in the
Python that `PYSPARK_PYTHON` names there, or an archive of such an environment in `spark.archives`.

Left out: Spark Connect. The listener, which shows progress and commits group offsets, would
run in the server, where there is neither a terminal nor our status file.
"""

from penstock.pipeline.running.session.java import Java, JavaMissing, find_java
from penstock.pipeline.running.session.opening import (
    SessionNotOpened,
    SessionOptions,
    SparkMissing,
    environment,
    open_session,
)

__all__ = [
    "open_session",
    "SessionOptions",
    "SessionNotOpened",
    "SparkMissing",
    "environment",
    "find_java",
    "Java",
    "JavaMissing",
]
