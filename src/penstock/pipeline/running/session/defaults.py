"""What a session is set to unless somebody says otherwise."""

import os
import re
from pathlib import Path
from typing import NamedTuple

from penstock.pipeline.errors import BadOption

LOOPBACK = "127.0.0.1"
GIBIBYTE = 1 << 30
LOGGING_NAME = "log4j2.properties"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_LOCAL = re.compile(r"local(?:\[(\*|\d+)(?:,\d+)?\])?")
_LOCAL_CLUSTER = re.compile(r"local-cluster\[(\d+),(\d+),\d+\]")
_LOOPBACK_MASTER = re.compile(r"spark://(localhost|127\.[\d.]+|\[::1\]):\d+")


class Machine(NamedTuple):
    """What this machine has to give."""

    cores: int
    memory_bytes: int


def this_machine() -> Machine:
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return Machine(len(os.sched_getaffinity(0)), pages)


def cores_of(master: str, machine: Machine) -> int | None:
    """How many tasks run at once, where the master's name says so; raises `BadOption` for no master."""
    name = master.replace(" ", "")
    if found := _LOCAL.fullmatch(name):
        if found[1] == "*":
            return machine.cores
        return int(found[1] or 1)
    if found := _LOCAL_CLUSTER.fullmatch(name):
        return int(found[1]) * int(found[2])
    if "://" in name or name == "yarn":
        return None
    raise BadOption(
        "master", f"{master!r} is none; try local[*], local-cluster[2,1,1024] or spark://host:7077"
    )


def is_local(master: str) -> bool:
    """Whether every process of Spark's runs on this machine."""
    return master.startswith("local") or _LOOPBACK_MASTER.fullmatch(master) is not None


def defaults(master: str, machine: Machine, directory: Path) -> dict[str, str]:
    """The configuration for a master; `directory` is where the session may keep files."""
    logging = (directory / LOGGING_NAME).absolute().as_uri()
    chosen = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str((directory / "warehouse").absolute()),
        "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # Spark's own 10,000 is small: a batch crosses to Python and back in one piece.
        "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={logging}",
    }
    cores = cores_of(master, machine)
    if cores is not None:
        # The default of 200 tasks per shuffle is for clusters: here it would take longer than the work.
        chosen["spark.sql.shuffle.partitions"] = str(max(2, cores))
    if is_local(master):
        chosen["spark.driver.host"] = chosen["spark.driver.bindAddress"] = LOOPBACK
    if _LOCAL.fullmatch(master):
        share = min(4 * GIBIBYTE, max(GIBIBYTE, machine.memory_bytes // 4))
        chosen["spark.driver.memory"] = f"{share >> 20}m"
    return chosen


def quiet_logging(file: Path) -> str:
    """Settings of log4j: warnings and worse into one file that starts anew at 20 MB, and no console."""
    return f"""\
status = error
appenders = file
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {file}
appender.file.filePattern = {file}.1
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd HH:mm:ss.SSS}}{{UTC}} %p %c{{1}}: %m%n%ex
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 20MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 1
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
"""
