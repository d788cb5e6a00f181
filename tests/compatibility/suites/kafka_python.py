"""kafka-python's integration tests, from its source distribution.

The distribution lacks two files they import; a stub stands in, since they start no broker here. Those of SASL
and TLS do start one each: a plugin gives them secured nodes.
"""

import os
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

from tests.compatibility.node import running_node
from tests.compatibility.suites.downloads import Unavailable, run, unpack
from tests.compatibility.suites.outcomes import Asked, Outcome
from tests.support.clusters import cluster_of

VERSION = "3.0.12"
ROOT = Path(__file__).parents[3]
# They start brokers of their own.
SECURED = ("test_sasl_integration.py", "test_ssl_integration.py")
PLUGIN = "tests.compatibility.suites.kafka_python_brokers"
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
            outcomes = _shared(tests, str(cluster.listener(0, "kafka")), asked)
    else:
        with running_node(directory, "node.id=0", *settings) as broker:
            outcomes = _shared(tests, broker.address, asked)
    return outcomes | _secured(tests, asked)


def _shared(tests: Path, address: str, asked: Asked) -> dict[str, Outcome]:
    """Run the tests that take the broker that is there."""
    only = {name for name in asked.only if not name.startswith(SECURED)}
    if asked.only and not only:
        return {}
    left_out = {*asked.leave_out, *SECURED}
    return _run(tests, asked, only, left_out, (), {"KAFKA_URI": f"kafka://{address}"})


def _secured(tests: Path, asked: Asked) -> dict[str, Outcome]:
    """Run those that start their own."""
    only = {name for name in asked.only if name.startswith(SECURED)} or {*SECURED}
    if asked.only and only == {*SECURED}:
        return {}
    path = os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))
    return _run(tests, asked, only, asked.leave_out, ("-p", PLUGIN), {"PYTHONPATH": path})


def _run(
    tests: Path,
    asked: Asked,
    only: Collection[str],
    leave_out: Collection[str],
    plugin: Sequence[str],
    variables: Mapping[str, str],
) -> dict[str, Outcome]:
    report = tests / "report.xml"
    report.unlink(missing_ok=True)
    environment = os.environ | {"KAFKA_VERSION": "4.3.0", "KAFKA_ROOT": str(tests), **variables}
    chosen = [f"test/integration/{name}" for name in sorted(only)] or ["test/integration"]
    left_out = [f"--deselect=test/integration/{name}" for name in sorted(leave_out)]
    options = ["-q", "-p", "no:randomly", *plugin, "--timeout=60", f"--junitxml={report}"]
    name = f"output-{'secured' if plugin else asked.brokers}.log"
    with (tests / name).open("w") as output:
        try:
            subprocess.run(
                [sys.executable, "-m", "pytest", *options, *left_out, *chosen],
                cwd=tests,
                env=environment,
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
