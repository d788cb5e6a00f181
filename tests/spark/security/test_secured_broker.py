"""A broker that wants TLS and a login, read and written by Spark, and where the password does not get to."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import SparkSession

from penstock.client import ConsumerOptions, TopicAdmin, TopicConsumer
from penstock.core.metadata.access import AclOperation, ResourceType
from penstock.spark.demo import SHORT_LIVED_JAVA
from tests.compatibility.secured_node import PASSWORDS, SecuredNode, allow, secured_node
from tests.compatibility.suites import token_endpoint

MECHANISM = "SCRAM-SHA-512"
FILE_PROVIDER = "org.apache.kafka.common.config.provider.FileConfigProvider"
COMMAND = [sys.executable, "-m", "penstock.cli", "pipeline", "run", "metrics", "--once", "--json"]
SECONDS = 240
Options = dict[str, str]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredNode]:
    with secured_node(tmp_path_factory.mktemp("secured")) as node:
        # A sink's transactions are called by its query, whose name Spark makes up.
        node.admin.create_acls(
            allow("alice", ResourceType.TRANSACTIONAL_ID, "*", AclOperation.WRITE, prefixed=False)
        )
        yield node


@pytest.fixture
def topic(secured: SecuredNode) -> str:
    name = f"alice-{secured.new_name()}"
    TopicAdmin(secured.endpoint()).create(name, 2, 1, {})
    return name


def login_file(secured: SecuredNode, directory: Path, user: str = "alice", **changes: str) -> Path:
    """The settings of librdkafka, as every command takes them."""
    file = directory / f"{user}.properties"
    settings = secured.options(user) | {name.replace("_", "."): value for name, value in changes.items()}
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    file.chmod(0o600)
    return file


def by_file(secured: SecuredNode, directory: Path, user: str = "alice", **changes: str) -> Options:
    return {
        "kafka.bootstrap.servers": secured.addresses["SASL_SSL"],
        "loginFile": str(login_file(secured, directory, user, **changes)),
    }


def as_the_connector_has_it(secured: SecuredNode, directory: Path) -> Options:
    """The options of Spark's own connector, which takes the line with the password from a file."""
    login = secured.login("SASL_SSL", MECHANISM)
    settings = login.java(directory)
    file = directory / "jaas.properties"
    file.write_text(f"sasl.jaas.config={settings['sasl.jaas.config']}\n")
    file.chmod(0o600)
    settings["sasl.jaas.config"] = f"${{file:{file}:sasl.jaas.config}}"
    settings |= {"config.providers": "file", "config.providers.file.class": FILE_PROVIDER}
    return {f"kafka.{name}": value for name, value in settings.items()}


def write(spark: SparkSession, options: Options, topic: str, rows: int) -> None:
    frame = spark.range(rows).selectExpr("concat('v', id) AS value")
    frame.write.format("penstock").options(**options).option("topic", topic).mode("append").save()


def stored(secured: SecuredNode, topic: str) -> list[bytes | None]:
    with TopicConsumer(secured.endpoint(), topic, ConsumerOptions(committed_only=True)) as reader:
        return sorted((record.value for batch in reader.batches() for record in batch), key=str)


def expected(rows: int) -> list[bytes]:
    return sorted(b"v%d" % row for row in range(rows))


def files_with(text: str, directory: Path) -> list[str]:
    """Those below a directory that have it in them."""
    return [
        str(file) for file in directory.rglob("*") if file.is_file() and text.encode() in file.read_bytes()
    ]


@pytest.mark.parametrize("how", [by_file, as_the_connector_has_it])
def test_a_batch_is_written_and_read_with_a_password_from_a_file(
    spark: SparkSession, secured: SecuredNode, topic: str, tmp_path: Path, how: object
) -> None:
    assert callable(how)
    options = how(secured, tmp_path)

    write(spark, options, topic, 20)
    frame = spark.read.format("penstock").options(**options).option("subscribe", topic).load()

    assert sorted(bytes(row.value) for row in frame.collect()) == expected(20)


def test_a_stream_is_exact_and_its_password_is_neither_in_plans_nor_in_progress_nor_in_the_checkpoint(
    spark: SparkSession, secured: SecuredNode, topic: str, tmp_path: Path
) -> None:
    copy, secret = f"{topic}-copy", PASSWORDS["alice"]
    TopicAdmin(secured.endpoint()).create(copy, 1, 1, {})
    # In the option itself, as many a query has it.
    settings = secured.login("SASL_SSL", MECHANISM).java(tmp_path)
    options = {f"kafka.{name}": value for name, value in settings.items()}
    write(spark, options, topic, 20)
    source = spark.readStream.format("penstock").options(**options)
    frame = source.options(subscribe=topic, startingOffsets="earliest", group=f"{topic}-group").load()
    sink = frame.select("value").writeStream.format("penstock").options(**options)
    checkpoint = tmp_path / "checkpoint"
    sink = sink.options(topic=copy, delivery="exactly-once", checkpointLocation=str(checkpoint))

    query = sink.trigger(availableNow=True).start()
    query.awaitTermination()

    assert stored(secured, copy) == expected(20)
    assert query._jsq is not None
    shown = [query._jsq.explainInternal(True), *(progress.json for progress in query.recentProgress)]
    assert len(shown) > 1
    assert [text for text in shown if secret in text] == []
    assert files_with(secret, checkpoint) == []


def test_what_a_topic_has_becomes_a_table(
    spark: SparkSession, secured: SecuredNode, topic: str, tmp_path: Path
) -> None:
    options = by_file(secured, tmp_path)
    write(spark, options, topic, 20)
    frame = spark.readStream.format("penstock").options(**options)
    rows = frame.options(subscribe=topic, startingOffsets="earliest").load()
    sink = rows.selectExpr("CAST(value AS STRING) AS value").writeStream.format("penstock-lake")

    query = sink.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
    query.start(str(tmp_path / "table")).awaitTermination()

    found = DeltaTable(str(tmp_path / "table")).to_pyarrow_table()["value"].to_pylist()
    assert sorted(found) == [value.decode() for value in expected(20)]


def test_a_client_that_fetches_tokens_writes_and_reads(
    spark: SparkSession, secured: SecuredNode, topic: str
) -> None:
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
    handler = "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler"
    with token_endpoint.token_endpoint(secured.issuer, "alice", 60) as tokens:
        settings = secured.login("SASL_SSL", "OAUTHBEARER").librdkafka() | {
            "sasl.jaas.config": f"{module} required"
            f' clientId="{token_endpoint.CLIENT_ID}" clientSecret="{token_endpoint.CLIENT_SECRET}";',
            "sasl.login.callback.handler.class": handler,
            "sasl.oauthbearer.token.endpoint.url": tokens + token_endpoint.VALID,
        }
        options = {f"kafka.{name}": value for name, value in settings.items()}

        write(spark, options, topic, 20)
        frame = spark.read.format("penstock").options(**options).option("subscribe", topic).load()

        assert sorted(bytes(row.value) for row in frame.collect()) == expected(20)


def test_who_has_no_rights_is_told_so_in_one_line(
    spark: SparkSession, secured: SecuredNode, topic: str, tmp_path: Path
) -> None:
    options = by_file(secured, tmp_path, "bob")

    with pytest.raises(AnalysisException) as refused:
        spark.read.format("penstock").options(**options).option("subscribe", topic).load().collect()

    said = str(refused.value)
    assert "Traceback" not in said
    assert PASSWORDS["bob"] not in said
    assert f"topic {topic}: topic authorization failed" in said


def test_a_stream_with_a_wrong_password_fails_and_does_not_say_it(
    spark: SparkSession, secured: SecuredNode, topic: str, tmp_path: Path
) -> None:
    user = secured.add_user("right")
    options = by_file(secured, tmp_path, "alice", sasl_username=user, sasl_password="not-the-password")
    source = spark.readStream.format("penstock").options(**options, retryTimeoutMs="3000")
    sink = source.option("subscribe", topic).load().writeStream.format("noop")

    with pytest.raises(StreamingQueryException) as refused:
        sink.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()

    assert "not-the-password" not in str(refused.value)


def test_the_metrics_pipeline_takes_its_login_from_a_file_and_keeps_none_of_it(
    secured: SecuredNode, tmp_path: Path
) -> None:
    admin = login_file(secured, tmp_path, "admin")
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    address = secured.addresses["SASL_SSL"]
    generate = [sys.executable, "-m", "penstock.cli", "generate", "--count", "200", "--close"]
    sent = subprocess.run(
        [*generate, "--bootstrap", address, "--command-config", str(admin)],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        env=variables,
        check=False,
    )
    assert sent.returncode == 0, sent.stderr
    state = tmp_path / "state"

    ran = subprocess.run(
        [
            *COMMAND,
            *("--master", "local[2]", "--state-dir", str(state), "--bootstrap", address),
            *("--conf", f"spark.driver.extraJavaOptions={SHORT_LIVED_JAVA}"),
        ],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        env=variables | {"PENSTOCK_COMMAND_CONFIG": str(admin)},
        check=False,
    )

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert json.loads(ran.stdout.splitlines()[-1])["state"] == "stopped"
    assert DeltaTable(str(state / "lake" / "raw")).to_pyarrow_table().num_rows >= 200
    secret = PASSWORDS["admin"]
    assert secret not in ran.stdout + ran.stderr
    assert files_with(secret, state) == []


def test_a_password_among_the_arguments_of_a_pipeline_is_refused(tmp_path: Path) -> None:
    ran = subprocess.run(
        [*COMMAND, "--state-dir", str(tmp_path), "--set", "kafka.sasl.password=hunter2"],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )

    assert ran.returncode == 1
    assert len(ran.stderr.splitlines()) == 1
    assert "PENSTOCK_OPTION_SASL_PASSWORD" in ran.stderr
    assert "hunter2" not in ran.stderr
