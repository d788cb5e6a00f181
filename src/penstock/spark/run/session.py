"""A Spark session that works from a pip install, on a laptop as on a cluster.

On this machine Spark binds to loopback alone, and its workers are the Python that runs us: they
find what we find. Workers on other machines need `penstock[spark]` of the same version in the
Python that `PYSPARK_PYTHON` names there, or an archive of such an environment in `spark.archives`.
Everything that Spark's processes print goes to one file.

Left out: Spark Connect. The listener, which shows progress and commits group offsets, would
run in the server, where there is neither a terminal nor our status file.
"""

import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.client.login_file import login_environment
from penstock.spark.errors import PipelineError, SparkOptionError
from penstock.spark.run.java import find_java

if TYPE_CHECKING:
    from socketserver import BaseServer

    from pyspark.sql import SparkSession

LOOPBACK = "127.0.0.1"
GIBIBYTE = 1 << 30
LOGGING_NAME = "log4j2.properties"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_LOCAL = re.compile(r"local(?:\[(\*|\d+)(?:,\d+)?\])?")
_LOCAL_CLUSTER = re.compile(r"local-cluster\[(\d+),(\d+),\d+\]")
_LOOPBACK_MASTER = re.compile(r"spark://(localhost|127\.[\d.]+|\[::1\]):\d+")
LOG_NAME = "spark.log"
LAST_LINES = 20


class MachineResources(NamedTuple):
    """What this machine has to give."""

    cores: int
    memory_bytes: int


def this_machine() -> MachineResources:
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return MachineResources(len(os.sched_getaffinity(0)), pages)


def cores_of(master: str, machine: MachineResources) -> int | None:
    """How many tasks run at once, if the master's name says so; raises `SparkOptionError` for no master."""
    name = master.replace(" ", "")
    if found := _LOCAL.fullmatch(name):
        if found[1] == "*":
            return machine.cores
        return int(found[1] or 1)
    if found := _LOCAL_CLUSTER.fullmatch(name):
        return int(found[1]) * int(found[2])
    if "://" in name or name == "yarn":
        return None
    raise SparkOptionError(
        "master", f"{master!r} is none; try local[*], local-cluster[2,1,1024] or spark://host:7077"
    )


def is_local(master: str) -> bool:
    """Whether every process of Spark's runs on this machine."""
    return master.startswith("local") or _LOOPBACK_MASTER.fullmatch(master) is not None


def defaults(master: str, machine: MachineResources, directory: Path) -> dict[str, str]:
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


class SparkMissing(PipelineError):
    """pyspark is not installed."""


class SessionNotOpened(PipelineError):
    """Spark did not start."""


@dataclass(frozen=True, slots=True)
class SparkSessionOptions:
    """What the command line says about the session."""

    name: str
    directory: Path
    master: str = "local[*]"
    conf: Mapping[str, str] = field(default_factory=dict)

    @property
    def log(self) -> Path:
        """Where Spark's log goes, and everything that its processes print."""
        return self.directory / LOG_NAME


@contextmanager
def open_session(options: SparkSessionOptions) -> Iterator["SparkSession"]:
    """A session, stopped at the end; raises `JavaMissing`, `SparkMissing` or `SessionNotOpened`."""
    if find_spec("pyspark") is None:
        raise SparkMissing("the pipeline needs Spark; get it with: pip install 'penstock[spark,jdk]'")
    conf = configuration(options)
    # Where queries are planned: processes of Spark's, which know their environment alone.
    os.environ.update(environment(options.master) | login_environment({}))
    spark = _opened(options, conf)
    try:
        yield spark
    finally:
        _close(spark, options.master)


def environment(master: str) -> dict[str, str]:
    """The variables by which Spark's scripts and processes find Java and Python."""
    chosen = {"JAVA_HOME": str(find_java(os.environ).home), "PYSPARK_DRIVER_PYTHON": sys.executable}
    if is_local(master):
        chosen["SPARK_LOCAL_IP"] = LOOPBACK
    if is_local(master) or "PYSPARK_PYTHON" not in os.environ:
        # Another Python than ours could not unpickle what we send it, and would not find Penstock.
        chosen["PYSPARK_PYTHON"] = sys.executable
    return chosen


def configuration(options: SparkSessionOptions) -> dict[str, str]:
    """Our defaults, and above them what was asked for."""
    ours = defaults(options.master, this_machine(), options.directory)
    chosen = ours | dict(options.conf)
    java = "spark.driver.extraJavaOptions"
    if java in options.conf:
        chosen[java] = f"{ours[java]} {options.conf[java]}"
    return chosen | {"spark.app.name": options.name, "spark.master": options.master}


def _opened(options: SparkSessionOptions, conf: Mapping[str, str]) -> "SparkSession":
    from py4j.protocol import Py4JError
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    options.directory.mkdir(parents=True, exist_ok=True)
    (options.directory / LOGGING_NAME).write_text(quiet_logging(options.log.absolute()))
    settings = SparkConf(loadDefaults=False).setAll(list(conf.items()))
    with options.log.open("ab") as log:
        # Ctrl-C is for us, and what the JVM and the workers print is for the log.
        child = {"stdout": log, "stderr": log, "start_new_session": True}
        try:
            gateway = launch_gateway(settings, child)  # type: ignore[no-untyped-call]
            context = SparkContext(conf=settings, gateway=gateway)
        except (PySparkException, Py4JError) as error:
            raise SessionNotOpened(f"Spark did not start: {_why(options.log, error)}") from None
    silence_disconnects(context._accumulatorServer)
    return SparkSession(context)


def silence_disconnects(server: "BaseServer") -> None:
    """Let a client that leaves in the middle of a message be no reason for a traceback.

    The JVM reports to a server in our process, and may close that connection before the server
    is stopped; when it dies, it always does.
    """
    loud = server.handle_error

    def handle_error(request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), EOFError | ConnectionError):
            loud(request, client_address)

    server.handle_error = handle_error  # type: ignore[method-assign]


def _close(spark: "SparkSession", master: str) -> None:
    from py4j.protocol import Py4JError
    from pyspark.find_spark_home import _find_spark_home

    with suppress(Py4JError, OSError):  # the JVM may be gone already
        application = spark.sparkContext.applicationId
        spark.stop()
        if master.startswith("local-cluster"):
            # Its workers leave the executors' files in Spark's own directory, whatever is configured.
            shutil.rmtree(Path(_find_spark_home(), "work", application), ignore_errors=True)


def _why(log: Path, error: Exception) -> str:
    """The last complaint in the log, or else what Python saw."""
    lines = log.read_text(errors="replace").splitlines()[-LAST_LINES:]
    complaints = [line for line in lines if "Error" in line or "Exception" in line]
    said = complaints[-1].strip() if complaints else str(error).splitlines()[0]
    return f"{said} (more in {log})"
