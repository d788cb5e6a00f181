"""kafka-python's integration tests, from its source distribution.

The distribution lacks two files they import; a stub stands in, since they start no broker here.
"""

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

from tests.compatibility.node import running_node
from tests.compatibility.suites.downloads import Unavailable, run, unpack
from tests.compatibility.suites.outcomes import Asked, Outcome
from tests.support.clusters import cluster_of

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


def execute(tests: Path, directory: Path, asked: Asked) -> dict[str, Outcome]:
    """Run the tests against fresh nodes. They want one to be broker 0, and sessions of three seconds.

    Nodes have access rules, which nobody is bound by until a test adds some.
    """
    rules = ("security.enabled=true", "security.open_without_rules=true")
    settings = ("topics.partitions=4", "groups.session_timeout_ms_min=1000", *rules)
    if asked.brokers > 1:
        with cluster_of(directory, *settings, count=asked.brokers, first=0) as cluster:
            return _run(tests, str(cluster.listener(0, "kafka")), asked)
    with running_node(directory, "node.id=0", *settings) as broker:
        return _run(tests, broker.address, asked)


def _run(tests: Path, address: str, asked: Asked) -> dict[str, Outcome]:
    report = tests / "report.xml"
    report.unlink(missing_ok=True)
    variables = {
        "KAFKA_URI": f"kafka://{address}",
        "KAFKA_VERSION": "4.3.0",
        "KAFKA_ROOT": str(tests),
    }
    chosen = [f"test/integration/{name}" for name in sorted(asked.only)] or ["test/integration"]
    left_out = [f"--deselect=test/integration/{name}" for name in sorted(asked.leave_out)]
    options = ["-q", "-p", "no:randomly", "--timeout=60", f"--junitxml={report}"]
    with (tests / f"output-{asked.brokers}.log").open("w") as output:
        try:
            subprocess.run(
                [sys.executable, "-m", "pytest", *options, *left_out, *chosen],
                cwd=tests,
                env=os.environ | variables,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=asked.seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise Unavailable(f"not done after {asked.seconds:.0f} s; see {output.name}") from None
    if not report.exists():
        raise Unavailable(f"pytest ended without a report; see {output.name}")
    return dict(_read(case) for case in ET.parse(report).iter("testcase"))


def _read(case: ET.Element) -> tuple[str, Outcome]:
    module, *classes = case.attrib["classname"].removeprefix("test.integration.").split(".")
    name = "::".join([f"{module}.py", *classes, case.attrib["name"]])
    if case.find("failure") is not None or case.find("error") is not None:
        return name, Outcome.FAILED
    return name, Outcome.SKIPPED if case.find("skipped") is not None else Outcome.PASSED
