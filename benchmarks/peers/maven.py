"""Jars from Maven Central, or whatever mirror this machine's Maven is set to: Kafka's, and any other's."""

import fcntl
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from penstock.core.model import PenstockError

JAVA_MIN = 17
FETCH_SECONDS = 600
# A range instead of a version: the peer is the newest release of the series.
NEWEST = "[4.0,5)"
_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>throw.away</groupId><artifactId>peer</artifactId><version>1</version><packaging>pom</packaging>
  <dependencyManagement><dependencies>{dependencies}</dependencies></dependencyManagement>
  <dependencies>{dependencies}</dependencies>
</project>
"""
_DEPENDENCY = """
    <dependency>
      <groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>
    </dependency>"""


class Artifact(NamedTuple):
    """What Maven calls a dependency. Its version counts, also where another artifact asks for another."""

    group: str
    artifact: str
    version: str


class PeerUnavailable(PenstockError):
    """The peer cannot be run here, and why."""


def default_cache() -> Path:
    """Where Kafka's jars are kept between runs."""
    return cache_root() / "kafka"


def cache_root() -> Path:
    """Where everything fetched is kept."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock"


def java() -> str:
    """The Java program; PeerUnavailable where there is none, or one too old for Kafka 4."""
    found = shutil.which("java")
    if found is None:
        raise PeerUnavailable("there is no java on the PATH")
    told = subprocess.run([found, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(\d+)', told)
    if version is None or int(version[1]) < JAVA_MIN:
        raise PeerUnavailable(
            f"Kafka 4 needs Java {JAVA_MIN}, this is {told.splitlines()[0] if told else '?'}"
        )
    return found


def jars(version: str = NEWEST, cache: Path | None = None) -> Path:
    """A directory with Kafka and all it depends on, fetched the first time."""
    kept = (cache or default_cache()) / ("newest" if version == NEWEST else version)
    if kafka_version(kept) is not None:
        return kept
    fetch([Artifact("org.apache.kafka", "kafka_2.13", version)], kept)
    if kafka_version(kept) is None:
        raise PeerUnavailable(f"Maven resolved {version} without the broker's jar")
    return kept


def fetch(artifacts: Sequence[Artifact], kept: Path, wanted: Callable[[str], bool] = bool) -> None:
    """Artifacts and all they depend on into a directory: those jars whose names are wanted."""
    maven = shutil.which("mvn")
    if maven is None:
        raise PeerUnavailable(f"there is no mvn on the PATH, and no {artifacts[0].artifact} in the cache")
    kept.parent.mkdir(parents=True, exist_ok=True)
    found = _inode(kept)
    with (
        kept.with_name(f"{kept.name}.lock").open("w") as lock,
        tempfile.TemporaryDirectory(prefix="fetching-", dir=kept.parent) as place,
    ):
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _inode(kept) != found:
            # Another process has fetched them meanwhile, and may be using them.
            return
        dependencies = "".join(_DEPENDENCY.format(**one._asdict()) for one in artifacts)
        Path(place, "pom.xml").write_text(_POM.format(dependencies=dependencies))
        _copy_dependencies(maven, place, artifacts[0].artifact)
        for jar in Path(place, "jars").iterdir():
            if not wanted(jar.name):
                jar.unlink()
        shutil.rmtree(kept, ignore_errors=True)
        # Renamed when complete, so that a broken download is never taken for a cache.
        Path(place, "jars").rename(kept)


def _inode(path: Path) -> int | None:
    return path.stat().st_ino if path.exists() else None


def kafka_version(directory: Path) -> str | None:
    """Which release lies in a directory of jars."""
    found = [match[1] for one in directory.glob("*.jar") if (match := _BROKER.fullmatch(one.name))]
    return found[0] if found else None


_BROKER = re.compile(r"kafka_2\.13-(\d[\w.]*)\.jar")


def _copy_dependencies(maven: str, place: str, what: str) -> None:
    # -U: what was missing the last time may be there today.
    command = [maven, "-B", "-q", "-U", "dependency:copy-dependencies", f"-DoutputDirectory={place}/jars"]
    try:
        answer = subprocess.run(
            command, cwd=place, capture_output=True, text=True, timeout=FETCH_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise PeerUnavailable(f"Maven did not fetch {what} within {FETCH_SECONDS} s") from None
    if answer.returncode != 0:
        errors = [line for line in answer.stdout.splitlines() if "ERROR" in line] or ["it said nothing"]
        raise PeerUnavailable(f"Maven could not fetch {what}: {_reason(errors[0])}")


def _reason(line: str) -> str:
    """The end of Maven's sentence, where it says what is missing."""
    return line.removesuffix(" -> [Help 1]").rpartition(": ")[2][:200]
