"""Opening a Spark session that says nothing on the terminal and listens to nobody else's machine."""

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.pipeline.errors import PipelineError
from penstock.pipeline.running.session.defaults import (
    LOGGING_NAME,
    LOOPBACK,
    defaults,
    is_local,
    quiet_logging,
    this_machine,
)
from penstock.pipeline.running.session.java import find_java

if TYPE_CHECKING:
    from socketserver import BaseServer

    from pyspark.sql import SparkSession

LOG_NAME = "spark.log"
LAST_LINES = 20


class SparkMissing(PipelineError):
    """pyspark is not installed."""


class SessionNotOpened(PipelineError):
    """Spark did not start."""


@dataclass(frozen=True, slots=True)
class SessionOptions:
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
def open_session(options: SessionOptions) -> Iterator["SparkSession"]:
    """A session, stopped at the end; raises `JavaMissing`, `SparkMissing` or `SessionNotOpened`."""
    if find_spec("pyspark") is None:
        raise SparkMissing("the pipeline needs Spark; get it with: pip install 'penstock[spark,jdk]'")
    conf = configuration(options)
    os.environ.update(environment(options.master))
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


def configuration(options: SessionOptions) -> dict[str, str]:
    """Our defaults, and above them what was asked for."""
    ours = defaults(options.master, this_machine(), options.directory)
    chosen = ours | dict(options.conf)
    java = "spark.driver.extraJavaOptions"
    if java in options.conf:
        chosen[java] = f"{ours[java]} {options.conf[java]}"
    return chosen | {"spark.app.name": options.name, "spark.master": options.master}


def _opened(options: SessionOptions, conf: Mapping[str, str]) -> "SparkSession":
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
    hush_goodbyes(context._accumulatorServer)
    return SparkSession(context)


def hush_goodbyes(server: "BaseServer") -> None:
    """Let a client that leaves in the middle of a message be no reason for a traceback.

    The JVM reports to a server in our process, and may close that connection before the server
    is told to stop; when it dies, it always does.
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
            # Its workers leave the executors' files in Spark's own directory, whatever they are told.
            shutil.rmtree(Path(_find_spark_home(), "work", application), ignore_errors=True)


def _why(log: Path, error: Exception) -> str:
    """The last complaint in the log, or else what Python saw."""
    lines = log.read_text(errors="replace").splitlines()[-LAST_LINES:]
    complaints = [line for line in lines if "Error" in line or "Exception" in line]
    said = complaints[-1].strip() if complaints else str(error).splitlines()[0]
    return f"{said} (more in {log})"
