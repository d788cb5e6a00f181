"""Java programs that use Kafka's own libraries, compiled where Maven Central can be reached."""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from benchmarks.peers.maven import NEWEST, Artifact, PeerUnavailable, cache_root, fetch, java

# The client, Streams, and the tools of Kafka's system tests.
ARTIFACTS = tuple(Artifact("org.apache.kafka", name, NEWEST) for name in ("kafka-tools", "kafka-streams"))
SOURCES = Path(__file__).parent / "java"
QUIET = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=off", "-XX:TieredStopAtLevel=1", "-Xmx256m")


def jars() -> Path:
    """The directory with Kafka's libraries; PeerUnavailable says why there is none."""
    kept = cache_root() / "kafka-clients"
    if not list(kept.glob("kafka-tools-*.jar")):
        fetch(ARTIFACTS, kept)
    return kept


def command(into: Path, program: str) -> list[str]:
    """Compile a program of `java/`, and return the command that runs it."""
    compiler = shutil.which("javac")
    if compiler is None:
        raise PeerUnavailable("there is no javac on the PATH")
    place = jars()
    source = SOURCES / f"{program}.java"
    subprocess.run([compiler, "-cp", f"{place}/*", "-d", str(into), str(source)], check=True)
    return launch([into], program)


def launch(classes: Sequence[Path], program: str) -> list[str]:
    """The command that runs a class, of ours or of Kafka's."""
    path = ":".join([*(str(one) for one in classes), f"{jars()}/*"])
    return [java(), *QUIET, "-cp", path, program]
