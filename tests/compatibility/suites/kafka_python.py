"""kafka-python's integration tests, from its source distribution.

The distribution lacks two files they import; a stub stands in, since they start no broker here.
"""

import os
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path
from xml.etree import ElementTree as ET

from tests.compatibility.node import Broker, running_node
from tests.compatibility.suites.downloads import Unavailable, run, unpack
from tests.compatibility.suites.outcomes import Outcome

VERSION = "3.0.12"
SERVICE = """\
class ExternalService:
    def __init__(self, host, port):
        self.host, self.port = host, port

    def open(self):
        pass

    close = stop = open


class SpawnedService:
    def __init__(self, *args, **kwargs):
        raise RuntimeError("these tests run against a broker that is there")
"""


def prepare(work: Path) -> Path:
    """Fetch, unless that was done; returns the directory that holds the tests."""
    source = work / f"kafka_python-{VERSION}"
    if not source.exists():
        work.mkdir(parents=True, exist_ok=True)
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
        run([*pip, f"kafka-python=={VERSION}"], work, 300)
        unpack(work / f"kafka_python-{VERSION}.tar.gz", work)
    (source / "test" / "__init__.py").touch()
    (source / "test" / "service.py").write_text(SERVICE)
    return source


def execute(
    tests: Path, directory: Path, only: Collection[str], leave_out: Collection[str], seconds: float
) -> dict[str, Outcome]:
    """Run the tests against a fresh node. They want it to be broker 0, and sessions of three seconds."""
    settings = ("node.id=0", "topics.partitions=4", "groups.session_timeout_ms_min=1000")
    with running_node(directory, *settings) as broker:
        return _run(tests, broker, only, leave_out, seconds)


def _run(
    tests: Path, broker: Broker, only: Collection[str], leave_out: Collection[str], seconds: float
) -> dict[str, Outcome]:
    report = tests / "report.xml"
    report.unlink(missing_ok=True)
    variables = {
        "KAFKA_URI": f"kafka://{broker.address}",
        "KAFKA_VERSION": "4.3.0",
        "KAFKA_ROOT": str(tests),
    }
    chosen = [f"test/integration/{name}" for name in only] or ["test/integration"]
    left_out = [f"--deselect=test/integration/{name}" for name in leave_out]
    options = ["-q", "-p", "no:randomly", "--timeout=60", f"--junitxml={report}"]
    with (tests / "output.log").open("w") as output:
        try:
            subprocess.run(
                [sys.executable, "-m", "pytest", *options, *left_out, *chosen],
                cwd=tests,
                env=os.environ | variables,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise Unavailable(f"not done after {seconds:.0f} s; see {output.name}") from None
    if not report.exists():
        raise Unavailable(f"pytest ended without a report; see {output.name}")
    return dict(_read(case) for case in ET.parse(report).iter("testcase"))


def _read(case: ET.Element) -> tuple[str, Outcome]:
    module, *classes = case.attrib["classname"].removeprefix("test.integration.").split(".")
    name = "::".join([f"{module}.py", *classes, case.attrib["name"]])
    if case.find("failure") is not None or case.find("error") is not None:
        return name, Outcome.FAILED
    return name, Outcome.SKIPPED if case.find("skipped") is not None else Outcome.PASSED
