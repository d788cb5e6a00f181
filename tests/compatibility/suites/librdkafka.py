"""librdkafka's own tests, in C, built from the copy that its JavaScript binding ships.

They want Kafka's command line for a few topics; `kafka_topics` stands in for it. Those of transactions have
Kafka's own producer write for them, those of access rules call Kafka's own command, and a few read
librdkafka's statistics with RapidJSON, whose headers come with a Python package. Those of TLS and logins run
against a secured node, once for each way to log in. `-L` leaves out tests that need no broker, `-E` those
that break their own sockets, `-Q` those parts that take long.
"""

import contextlib
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from benchmarks.peers import maven
from penstock.client import Endpoint
from tests.compatibility.clients import java_programs
from tests.compatibility.node import running_node
from tests.compatibility.secured_node import (
    PASSWORD_MECHANISMS,
    PASSWORDS,
    CertificatePair,
    Issuer,
    Login,
    can_log_in,
    make_certificates,
    security_settings,
)
from tests.compatibility.suites import token_endpoint
from tests.compatibility.suites.client_keys import write_assertion_keys, write_certificates
from tests.compatibility.suites.downloads import Unavailable, run, unpack
from tests.compatibility.suites.outcomes import Asked, Outcome
from tests.support.clusters import ClusterProcesses, cluster_of, until

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
# Groups that run against the nodes that everything else does.
DEFAULT = ("0081_admin/", "sockets/")
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
# There are access rules, and nobody is bound by them before a test adds some.
RULES = ("security.enabled=true", "security.open_without_rules=true")
# Every test of re-authentication goes on for a little longer than this.
REAUTHENTICATE_MS = 5_000
USER = "admin"
NO_LOGIN: Mapping[str, str] = MappingProxyType({})
ONE_BY_ONE = ("-E", "-p1")
# Its last two parts look for a refusal within a second: the first of a user comes in time, later ones wait.
REAUTHENTICATION = "0142_reauthentication"
REFUSED_PART = "do_test_reauth_failure"
REAUTHENTICATION_PARTS = (
    "do_test_consumer",
    "do_test_share_consumer",
    "do_test_producer",
    "do_test_txn_producer",
)
LOGINS = tuple(
    Group(mechanism, ("0135_sasl_credentials",), flags=ONE_BY_ONE) for mechanism in PASSWORD_MECHANISMS
)
OIDC = Group("OIDC", ("0126_oauthbearer_oidc", REAUTHENTICATION), flags=ONE_BY_ONE)
# What clients do every day, encrypted and logged in.
ENCRYPTED = Group(
    "SASL_SSL",
    (
        "0001_multiobj",
        "0011_produce_batch",
        "0012_produce_consume",
        "0017_compression",
        "0030_offset_commit",
        "0039_event_dr",
        "0097_ssl_verify",
        "0103_transactions",
        "0113_cooperative_rebalance",
    ),
)
STATES = {"PASSED": Outcome.PASSED, "SKIPPED": Outcome.SKIPPED}
TOPICS_COMMAND = """\
#!/bin/sh
cd {root} && exec {python} -m tests.compatibility.suites.kafka_topics "$@"
"""
CLASS_COMMAND = """\
#!/bin/sh
exec {java} -cp "$CLASSPATH:{jars}/*" "$@"
"""
ACLS_COMMAND = """\
#!/bin/sh
exec {java} -cp "{jars}/*" org.apache.kafka.tools.AclCommand "$@"
"""


def prepare(work: Path) -> Path:
    """Fetch and build, unless that was done; returns the directory of the tests."""
    if shutil.which("curl-config") is None:
        raise Unavailable(
            "librdkafka fetches tokens with libcurl, whose headers are missing (libcurl4-openssl-dev)"
        )
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
        java, libraries, tools = maven.java(), maven.jars(), java_programs.jars()
    except maven.PeerUnavailable as reason:
        raise Unavailable(str(reason)) from None
    root, python = shlex.quote(str(ROOT)), shlex.quote(sys.executable)
    commands = {
        "kafka-topics.sh": TOPICS_COMMAND.format(root=root, python=python),
        "kafka-run-class.sh": CLASS_COMMAND.format(java=shlex.quote(java), jars=libraries),
        "kafka-acls.sh": ACLS_COMMAND.format(java=shlex.quote(java), jars=tools),
    }
    (directory / "bin").mkdir(parents=True, exist_ok=True)
    for name, text in commands.items():
        (directory / "bin" / name).write_text(text)
        (directory / "bin" / name).chmod(0o755)
    (directory / "libs").unlink(missing_ok=True)
    (directory / "libs").symlink_to(libraries)


def execute(tests: Path, directory: Path, asked: Asked) -> dict[str, Outcome]:
    """Run the tests against fresh nodes; a test is called by the number it begins with."""
    outcomes: dict[str, Outcome] = {}
    if not asked.only or any(SEPARATOR not in name or name.startswith(DEFAULT) for name in asked.only):
        with _brokers(_made(directory / "default"), asked.brokers) as address:
            outcomes |= _defaults(tests, address, asked) | _parts(tests, address, asked)
            outcomes |= _group(tests, address, asked, BROKEN_SOCKETS)
    if _wants(asked, THREE_BROKERS, NEW_PROTOCOL):
        with cluster_of(_made(directory / "three"), PARTITIONS, rack=RACK) as cluster:
            for group in (THREE_BROKERS, NEW_PROTOCOL):
                outcomes |= _group(tests, cluster.bootstrap, asked, group)
    if _wants(asked, WITHOUT_AUTO_CREATE):
        with cluster_of(_made(directory / "bare"), PARTITIONS, "topics.auto_create=false") as cluster:
            outcomes |= _group(tests, cluster.bootstrap, asked, WITHOUT_AUTO_CREATE)
    if _wants(asked, *LOGINS, OIDC, ENCRYPTED) or any(REAUTHENTICATION in name for name in asked.only):
        outcomes |= _secured(tests, _made(directory / "secured"), asked)
    return outcomes


def _wants(asked: Asked, *groups: Group) -> bool:
    """Whether a node is worth starting."""
    names = (f"{group.title}{SEPARATOR}{name}" for group in groups for name in group.members)
    return any(map(asked.wants, names))


def _secured(tests: Path, directory: Path, asked: Asked) -> dict[str, Outcome]:
    """Run the groups that log in, against a cluster of three."""
    outcomes: dict[str, Outcome] = {}
    with _secured_cluster(directory) as (cluster, issuer):
        ours = SecuredClients(cluster.bootstrap, directory, issuer)
        for number, group in enumerate(LOGINS):
            parts = REAUTHENTICATION_PARTS if number else (REFUSED_PART, *REAUTHENTICATION_PARTS)
            login = ours.login(group.title)
            outcomes |= _reauthentication(tests, cluster.bootstrap, asked, group.title, parts, login)
            outcomes |= _group(tests, cluster.bootstrap, asked, group, login)
        signing = write_assertion_keys(directory)
        client_key = Path(signing["OAUTHBEARER_CLIENT_PRIVATE_KEY"])
        with token_endpoint.token_endpoint(issuer, USER, REAUTHENTICATE_MS // 1_000, client_key) as tokens:
            paths = {
                "VALID_OIDC_URL": token_endpoint.VALID,
                "EXPIRED_TOKEN_OIDC_URL": token_endpoint.EXPIRED,
                "INVALID_OIDC_URL": token_endpoint.INVALID,
            }
            urls = {name: tokens + path for name, path in paths.items()}
            group = OIDC._replace(variables=urls | signing)
            outcomes |= _group(tests, cluster.bootstrap, asked, group, ours.oidc(tokens))
        keys = write_certificates(directory, ours.pair, ours.authority)
        login = ours.login("SCRAM-SHA-512") | {
            "ssl.certificate.location": str(ours.pair.certificate),
            "ssl.key.location": keys["SSL_priv_pem"],
            "ssl.key.password": keys["SSL_password"],
        }
        group = ENCRYPTED._replace(variables=keys)
        return outcomes | _group(tests, cluster.bootstrap, asked, group, login)


def _reauthentication(
    tests: Path, address: str, asked: Asked, mechanism: str, parts: Sequence[str], login: Mapping[str, str]
) -> dict[str, Outcome]:
    """Run the parts of this test by themselves."""
    outcomes = {}
    for part in parts:
        name = f"{mechanism}{SEPARATOR}{REAUTHENTICATION}{SEPARATOR}{part}"
        if asked.wants(name):
            chosen = {"TESTS": REAUTHENTICATION[:4], "SUBTESTS": part}
            title = f"{mechanism}-{part}-{asked.brokers}"
            found = _run(tests, address, title, chosen, PART_SECONDS, flags=ONE_BY_ONE, login=login)
            outcomes[name] = found[REAUTHENTICATION]
    return outcomes


@contextlib.contextmanager
def _secured_cluster(directory: Path) -> Iterator[tuple[ClusterProcesses, Issuer]]:
    """Three nodes whose clients come encrypted and log in."""
    make_certificates(directory)
    issuer = Issuer(directory / "jwks.json")
    settings = (
        *security_settings(directory, issuer, first="SASL_SSL"),
        PARTITIONS,
        "security.peers=plain",
        "security.tls.client_auth=none",
        f"security.sasl.reauthenticate_ms={REAUTHENTICATE_MS}",
    )
    with cluster_of(directory, *settings, rack=RACK) as cluster:
        ours = SecuredClients(cluster.bootstrap, directory, issuer)
        endpoint = Endpoint(cluster.bootstrap, ours.login("SCRAM-SHA-512"))
        until(lambda: can_log_in(endpoint), "the administrator has its password")
        yield cluster, issuer


class SecuredClients(NamedTuple):
    """Settings of clients that log in as the administrator."""

    address: str
    root: Path
    issuer: Issuer

    @property
    def authority(self) -> Path:
        return self.root / "certs" / "ca.pem"

    @property
    def pair(self) -> CertificatePair:
        return CertificatePair(self.root / "certs" / "alice.pem", self.root / "certs" / "alice.key")

    def login(self, mechanism: str) -> dict[str, str]:
        login = Login(self.address, "SASL_SSL", self.authority, mechanism, USER, PASSWORDS[USER])
        settings = login.librdkafka()
        del settings["bootstrap.servers"]
        return settings

    def oidc(self, tokens: str) -> dict[str, str]:
        """Those of one that fetches its tokens."""
        return self.login("OAUTHBEARER") | {
            "sasl.oauthbearer.method": "OIDC",
            "sasl.oauthbearer.client.id": token_endpoint.CLIENT_ID,
            "sasl.oauthbearer.client.secret": token_endpoint.CLIENT_SECRET,
            "sasl.oauthbearer.scope": token_endpoint.SCOPE,
            "sasl.oauthbearer.token.endpoint.url": tokens + token_endpoint.VALID,
            "sasl.oauthbearer.extensions": "ExtensionworkloadIdentity=suite,Extensioncluster=lkc123",
        }


@contextlib.contextmanager
def _brokers(directory: Path, count: int) -> Iterator[str]:
    """One node, or several that are a cluster: where clients find them."""
    if count > 1:
        with cluster_of(directory, PARTITIONS, *RULES, count=count, rack=RACK) as cluster:
            yield cluster.bootstrap
    else:
        with running_node(directory, PARTITIONS, *RULES) as broker:
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


def _group(
    tests: Path, address: str, asked: Asked, group: Group, login: Mapping[str, str] = NO_LOGIN
) -> dict[str, Outcome]:
    names = {name: f"{group.title}{SEPARATOR}{name}" for name in group.members}
    wanted = {name: title for name, title in names.items() if asked.wants(title)}
    if not wanted:
        return {}
    chosen = {"TESTS": _numbers(wanted), **group.variables}
    title = f"{group.title}-{asked.brokers}"
    outcomes = _run(tests, address, title, chosen, asked.seconds, flags=group.flags, login=login)
    return {title: outcomes[name] for name, title in wanted.items()}


def _run(
    tests: Path,
    address: str,
    title: str,
    chosen: Mapping[str, str],
    seconds: float,
    *,
    flags: Sequence[str] = QUICK,
    login: Mapping[str, str] = NO_LOGIN,
) -> dict[str, Outcome]:
    """One run of the suite's own runner; `chosen` say of what, `title` where its output goes."""
    settings = {**login, "bootstrap.servers": address}
    (tests / "test.conf").write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
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
