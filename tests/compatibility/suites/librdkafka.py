"""librdkafka's own tests, in C, built from the copy that its JavaScript binding ships.

They want Kafka's command line for a few topics; `kafka_topics` stands in for it. Those of transactions have
Kafka's own producer write for them, and a few read librdkafka's statistics with RapidJSON, whose headers come
with a Python package. `-L` leaves out tests that need no broker, `-E` those that break their own sockets,
`-Q` those parts that take long.
"""

import contextlib
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.peers import maven
from tests.compatibility.node import running_node
from tests.compatibility.suites.downloads import Unavailable, run, unpack
from tests.compatibility.suites.outcomes import Asked, Outcome
from tests.support.clusters import cluster_of

PACKAGE = "@confluentinc/kafka-javascript"
VERSION = "1.10.1"
RAPIDJSON = "python-rapidjson"
RAPIDJSON_VERSION = "1.25"
ROOT = Path(__file__).parents[3]
BUILD_SECONDS = 1200
PART_SECONDS = 120
# A test of many parts stops at the first that fails. These are run one by one as well.
SEPARATOR = "/"
PARTS = {
    "0081_admin": (
        "do_test_AlterConfigs",
        "do_test_AlterConsumerGroupOffsets",
        "do_test_CreateAcls",
        "do_test_CreatePartitions",
        "do_test_CreateTopics",
        "do_test_DeleteAcls",
        "do_test_DeleteConsumerGroupOffsets",
        "do_test_DeleteGroups",
        "do_test_DeleteRecords",
        "do_test_DeleteTopics",
        "do_test_DescribeAcls",
        "do_test_DescribeCluster",
        "do_test_DescribeConfigs",
        "do_test_DescribeConsumerGroups",
        "do_test_DescribeTopics",
        "do_test_IncrementalAlterConfigs",
        "do_test_ListConsumerGroupOffsets",
        "do_test_ListConsumerGroups",
        "do_test_ListOffsets",
        "do_test_UserScramCredentials",
    ),
}
# Four tests at a time, without those that break sockets, and without those parts that take long.
WHOLE = ("-E", "-p4")
QUICK = (*WHOLE, "-Q")


class Group(NamedTuple):
    """Tests that are run by themselves, and are called by the group's title and their own."""

    title: str
    members: Sequence[str]
    variables: Mapping[str, str] = {}
    flags: Sequence[str] = QUICK


# The suite's scenario of topics that appear when they are created, and not before. Quick mode leaves out
# every part of these.
WITHOUT_AUTO_CREATE = Group(
    "noautocreate",
    (
        "0045_subscribe_update_non_exist_and_partchange",
        "0045_subscribe_update_topic_remove",
        "0107_topic_recreate",
        "0111_delay_create_topics",
    ),
    {"TEST_SCENARIO": "noautocreate"},
    WHOLE,
)
# Topics with three replicas, in racks of these names.
THREE_BROKERS = Group("three", ("0098_consumer_txn", "0101_fetch_from_follower", "0103_transactions"))
RACK = "RACK{number}"
# One at a time: what breaks the sockets of one test breaks those of all.
BROKEN_SOCKETS = Group(
    "sockets",
    (
        "0049_consume_conn_close",
        "0068_produce_timeout",
        "0075_retry",
        "0076_produce_retry",
        "0088_produce_metadata_timeout",
        "0094_idempotence_msg_timeout",
    ),
    flags=("-p1", "-Q"),
)
# Tests of groups that make sense with both protocols (KIP-848).
NEW_PROTOCOL = Group(
    "consumer",
    (
        "0012_produce_consume",
        "0029_assign_offset",
        "0030_offset_commit",
        "0033_regex_subscribe",
        "0056_balanced_group_mt",
        "0099_commit_metadata",
        "0113_cooperative_rebalance",
        "0118_commit_rebalance",
        "0130_store_offsets",
        "0140_commit_metadata",
    ),
    {"TEST_CONSUMER_GROUP_PROTOCOL": "consumer"},
)
PARTITIONS = "topics.partitions=4"
STATES = {"PASSED": Outcome.PASSED, "SKIPPED": Outcome.SKIPPED}
TOPICS_COMMAND = """\
#!/bin/sh
cd {root} && exec {python} -m tests.compatibility.suites.kafka_topics "$@"
"""
CLASS_COMMAND = """\
#!/bin/sh
exec {java} -cp "$CLASSPATH:{jars}/*" "$@"
"""


def prepare(work: Path) -> Path:
    """Fetch and build, unless that was done; returns the directory of the tests."""
    source = work / f"librdkafka-{VERSION}"
    tests = source / "package" / "deps" / "librdkafka" / "tests"
    if not (tests / "test-runner").exists():
        source.mkdir(parents=True, exist_ok=True)
        archive = run(["npm", "pack", "--silent", f"{PACKAGE}@{VERSION}"], source, 120).split()[-1]
        unpack(source / archive, source)
        flags = f"--CPPFLAGS=-I{_rapidjson(work)}"
        run(["./configure", "--disable-lz4-ext", flags], tests.parent, BUILD_SECONDS)
        run(["make", "-j2", "libs"], tests.parent, BUILD_SECONDS)
        run(["make", "-j2", "-C", "tests", "build"], tests.parent, BUILD_SECONDS)
    _write_kafka(source / "kafka")
    return tests


def _rapidjson(work: Path) -> Path:
    """Where the headers are."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
    run([*pip, f"{RAPIDJSON}=={RAPIDJSON_VERSION}"], work, 300)
    name = f"{RAPIDJSON.replace('-', '_')}-{RAPIDJSON_VERSION}"
    unpack(work / f"{name}.tar.gz", work)
    return work / name / "rapidjson" / "include"


def _write_kafka(directory: Path) -> None:
    """What the tests use of an installed Kafka."""
    try:
        java, libraries = maven.java(), maven.jars()
    except maven.PeerUnavailable as reason:
        raise Unavailable(str(reason)) from None
    root, python = shlex.quote(str(ROOT)), shlex.quote(sys.executable)
    commands = {
        "kafka-topics.sh": TOPICS_COMMAND.format(root=root, python=python),
        "kafka-run-class.sh": CLASS_COMMAND.format(java=shlex.quote(java), jars=libraries),
    }
    (directory / "bin").mkdir(parents=True, exist_ok=True)
    for name, text in commands.items():
        (directory / "bin" / name).write_text(text)
        (directory / "bin" / name).chmod(0o755)
    (directory / "libs").unlink(missing_ok=True)
    (directory / "libs").symlink_to(libraries)


def execute(tests: Path, directory: Path, asked: Asked) -> dict[str, Outcome]:
    """Run the tests against fresh nodes; a test is called by the number it begins with."""
    with _brokers(_made(directory / "default"), asked.brokers) as address:
        outcomes = _defaults(tests, address, asked) | _parts(tests, address, asked)
        outcomes |= _group(tests, address, asked, BROKEN_SOCKETS)
    with cluster_of(_made(directory / "three"), PARTITIONS, rack=RACK) as cluster:
        for group in (THREE_BROKERS, NEW_PROTOCOL):
            outcomes |= _group(tests, cluster.bootstrap, asked, group)
    with cluster_of(_made(directory / "bare"), PARTITIONS, "topics.auto_create=false") as cluster:
        return outcomes | _group(tests, cluster.bootstrap, asked, WITHOUT_AUTO_CREATE)


@contextlib.contextmanager
def _brokers(directory: Path, count: int) -> Iterator[str]:
    """One node, or several that are a cluster: where clients find them."""
    if count > 1:
        with cluster_of(directory, PARTITIONS, count=count, rack=RACK) as cluster:
            yield cluster.bootstrap
    else:
        with running_node(directory, PARTITIONS) as broker:
            yield broker.address


def _made(directory: Path) -> Path:
    directory.mkdir()
    return directory


def _numbers(names: Iterable[str]) -> str:
    return ",".join(sorted({name[:4] for name in names if SEPARATOR not in name}))


def _defaults(tests: Path, address: str, asked: Asked) -> dict[str, Outcome]:
    chosen = {"TESTS": _numbers(asked.only), "TESTS_SKIP": _numbers(asked.leave_out)}
    if asked.only and not chosen["TESTS"]:
        return {}
    flags = WHOLE if asked.whole else QUICK
    outcomes = _run(tests, address, f"default-{asked.brokers}", chosen, asked.seconds, flags=flags)
    return {name: outcome for name, outcome in outcomes.items() if name not in WITHOUT_AUTO_CREATE.members}


def _parts(tests: Path, address: str, asked: Asked) -> dict[str, Outcome]:
    outcomes = {}
    for whole, parts in PARTS.items():
        for part in parts:
            name = f"{whole}{SEPARATOR}{part}"
            if asked.wants(name):
                chosen = {"TESTS": whole[:4], "SUBTESTS": part}
                outcomes[name] = _run(tests, address, f"{part}-{asked.brokers}", chosen, PART_SECONDS)[whole]
    return outcomes


def _group(tests: Path, address: str, asked: Asked, group: Group) -> dict[str, Outcome]:
    names = {name: f"{group.title}{SEPARATOR}{name}" for name in group.members}
    wanted = {name: title for name, title in names.items() if asked.wants(title)}
    if not wanted:
        return {}
    chosen = {"TESTS": _numbers(wanted), **group.variables}
    title = f"{group.title}-{asked.brokers}"
    outcomes = _run(tests, address, title, chosen, asked.seconds, flags=group.flags)
    return {title: outcomes[name] for name, title in wanted.items()}


def _run(
    tests: Path,
    address: str,
    title: str,
    chosen: Mapping[str, str],
    seconds: float,
    *,
    flags: Sequence[str] = QUICK,
) -> dict[str, Outcome]:
    """One run of the suite's own runner; `chosen` say of what, `title` where its output goes."""
    (tests / "test.conf").write_text(f"bootstrap.servers={address}\n")
    report = tests / "report.json"
    report.unlink(missing_ok=True)
    variables = {
        "LD_LIBRARY_PATH": "../src:../src-cpp",
        "CI": "1",
        "TEST_KAFKA_VERSION": "4.0.0",
        "TEST_REPORT": str(report),
        "KAFKA_PATH": str(tests.parents[3] / "kafka"),
        "BROKERS": address,
    } | {name: value for name, value in chosen.items() if value}
    with (tests / f"output-{title}.log").open("w") as output:
        process = subprocess.Popen(
            ["./test-runner", "-L", *flags],
            cwd=tests,
            env=os.environ | variables,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise Unavailable(f"not done after {seconds:.0f} s; see {output.name}") from None
        finally:
            process.kill()
            process.wait()
    if not report.exists():
        raise Unavailable(f"the runner ended without a report; see {output.name}")
    read = json.loads(report.read_text())["tests"]
    return {
        name: STATES.get(test["state"], Outcome.FAILED) for name, test in read.items() if name != "<MAIN>"
    }
