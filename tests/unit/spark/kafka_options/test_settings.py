from pathlib import Path

import pytest

from penstock.spark.errors import SparkOptionError
from penstock.spark.kafka_options import (
    boolean_option,
    choice_option,
    integer_option,
    kafka_endpoint,
    kafka_settings,
    option,
)

BROKER = {"kafka.bootstrap.servers": "b:9092"}


def test_an_option_is_found_whatever_the_case_of_its_name() -> None:
    assert option({"startingoffsets": "earliest"}, "startingOffsets") == "earliest"
    assert option({"startingOffsets": "earliest"}, "STARTINGOFFSETS") == "earliest"
    assert option({}, "startingOffsets") is None
    assert option({}, "startingOffsets", "latest") == "latest"


def test_a_number_that_is_none_is_named_with_its_option() -> None:
    assert integer_option({"minpartitions": "7"}, "minPartitions") == 7
    assert integer_option({}, "minPartitions", 3) == 3

    with pytest.raises(SparkOptionError, match=r"option minPartitions: 'seven' is not a whole number"):
        integer_option({"minpartitions": "seven"}, "minPartitions")
    with pytest.raises(SparkOptionError, match=r"option minPartitions: 0 is less than 1"):
        integer_option({"minpartitions": "0"}, "minPartitions", minimum=1)


def test_a_boolean_is_true_or_false_and_nothing_else() -> None:
    assert boolean_option({"failondataloss": "FALSE"}, "failOnDataLoss", True) is False
    assert boolean_option({"failondataloss": "true"}, "failOnDataLoss", False) is True
    assert boolean_option({}, "failOnDataLoss", True) is True

    with pytest.raises(SparkOptionError, match="option failOnDataLoss: 'maybe'"):
        boolean_option({"failondataloss": "maybe"}, "failOnDataLoss", True)


def test_a_choice_is_one_of_its_words() -> None:
    assert (
        choice_option({"delivery": "Exactly-Once"}, "delivery", ("a", "exactly-once"), "a") == "exactly-once"
    )

    with pytest.raises(SparkOptionError, match="option delivery: 'once' is none of a, b"):
        choice_option({"delivery": "once"}, "delivery", ("a", "b"), "a")


def test_only_keys_below_kafka_become_settings_without_their_prefix() -> None:
    settings = kafka_settings({**BROKER, "subscribe": "t", "KAFKA.Linger.ms": "5", "kafka.client.id": "me"})

    assert settings == {"bootstrap.servers": "b:9092", "linger.ms": "5", "client.id": "me"}


@pytest.mark.parametrize("options", [{}, {"kafka.bootstrap.servers": " "}, {"bootstrap.servers": "b:9092"}])
def test_bootstrap_servers_is_required(options: dict[str, str]) -> None:
    with pytest.raises(SparkOptionError, match=r"option kafka\.bootstrap\.servers: is required"):
        kafka_settings(options)


@pytest.mark.parametrize(
    "name",
    [
        "auto.offset.reset",
        "key.deserializer",
        "value.serializer",
        "enable.auto.commit",
        "interceptor.classes",
        "partitioner.class",
        "sasl.login.callback.handler.class",
        "ssl.enabled.protocols",
    ],
)
def test_what_would_change_the_meaning_is_refused_by_name(name: str) -> None:
    with pytest.raises(SparkOptionError, match=rf"option kafka\.{name}: is "):
        kafka_settings({**BROKER, f"kafka.{name}": "x"})


def test_a_group_id_and_an_isolation_level_pass() -> None:
    settings = kafka_settings({**BROKER, "kafka.group.id": "g", "kafka.isolation.level": "read_uncommitted"})

    assert settings["group.id"] == "g"
    assert settings["isolation.level"] == "read_uncommitted"


def test_java_names_become_those_of_librdkafka() -> None:
    settings = kafka_settings(
        BROKER
        | {
            "kafka.fetch.max.wait.ms": "100",
            "kafka.max.request.size": "2000000",
            "kafka.buffer.memory": "33554432",
            "kafka.max.poll.records": "500",
            "kafka.delivery.timeout.ms": "9000",
        }
    )

    assert settings == {
        "bootstrap.servers": "b:9092",
        "fetch.wait.max.ms": "100",
        "message.max.bytes": "2000000",
        "queue.buffering.max.kbytes": "32768",
        "message.timeout.ms": "9000",
    }


def test_a_jaas_line_becomes_user_and_password() -> None:
    line = r"""org.apache.kafka.common.security.plain.PlainLoginModule required
        username="ana" password="pa\"ss;=word" ;"""

    settings = kafka_settings({**BROKER, "kafka.sasl.jaas.config": line})

    assert settings["sasl.username"] == "ana"
    assert settings["sasl.password"] == 'pa"ss;=word'
    assert settings["sasl.mechanism"] == "PLAIN"
    assert "sasl.jaas.config" not in settings


def test_a_scram_line_keeps_the_mechanism_that_was_named() -> None:
    line = "org.apache.kafka.common.security.scram.ScramLoginModule required username='ana' password=secret;"

    settings = kafka_settings(
        {**BROKER, "kafka.sasl.mechanism": "SCRAM-SHA-512", "kafka.sasl.jaas.config": line}
    )

    assert settings["sasl.mechanism"] == "SCRAM-SHA-512"
    assert settings["sasl.password"] == "secret"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("nonsense", "expected: <login module>"),
        ("com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true;", "Krb5LoginModule is not"),
        ('x.PlainLoginModule required username="ana" pass="secret";', "has no password"),
    ],
)
def test_a_jaas_line_that_is_no_use_is_refused_without_showing_it(line: str, why: str) -> None:
    with pytest.raises(SparkOptionError, match=why) as refused:
        kafka_settings({**BROKER, "kafka.sasl.jaas.config": line})

    assert "secret" not in str(refused.value)


def test_pem_stores_become_locations_and_texts() -> None:
    settings = kafka_settings(
        BROKER
        | {
            "kafka.ssl.truststore.location": "/etc/ca.crt",
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.keystore.location": "/etc/me.pem",
            "kafka.ssl.key.password": "k",
            "kafka.ssl.endpoint.identification.algorithm": "",
        }
    )

    assert settings == {
        "bootstrap.servers": "b:9092",
        "ssl.ca.location": "/etc/ca.crt",
        "ssl.key.location": "/etc/me.pem",
        "ssl.certificate.location": "/etc/me.pem",
        "ssl.key.password": "k",
        "ssl.endpoint.identification.algorithm": "none",
    }
    texts = kafka_settings({**BROKER, "kafka.ssl.truststore.certificates": "-----BEGIN"})
    assert texts["ssl.ca.pem"] == "-----BEGIN"


def test_a_pkcs12_key_store_passes_and_a_jks_one_is_refused() -> None:
    settings = kafka_settings({**BROKER, "kafka.ssl.keystore.location": "/etc/me.p12"})
    assert settings["ssl.keystore.location"] == "/etc/me.p12"

    for name in ("kafka.ssl.keystore.location", "kafka.ssl.truststore.location"):
        with pytest.raises(SparkOptionError, match=name):
            kafka_settings({**BROKER, name: "/etc/store.jks"})


def test_the_settings_make_an_endpoint_for_the_client() -> None:
    endpoint = kafka_endpoint(kafka_settings({**BROKER, "kafka.linger.ms": "7"}))

    assert endpoint.bootstrap == "b:9092"
    assert endpoint.settings(linger_ms=5)["linger.ms"] == "7"


FILE_PROVIDER = "org.apache.kafka.common.config.provider.FileConfigProvider"
ENVIRONMENT_PROVIDER = "org.apache.kafka.common.config.provider.EnvVarConfigProvider"
DIRECTORY_PROVIDER = "org.apache.kafka.common.config.provider.DirectoryConfigProvider"


def private(file: Path, text: str) -> Path:
    file.write_text(text)
    file.chmod(0o600)
    return file


def provided(kind: str, value: str) -> dict[str, str]:
    return BROKER | {
        "kafka.config.providers": "p",
        "kafka.config.providers.p.class": kind,
        "kafka.sasl.password": value,
    }


def test_values_come_from_where_kafkas_config_providers_find_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = private(tmp_path / "login", "sasl.password=from a file\n")
    private(tmp_path / "word", "from a directory")
    monkeypatch.setenv("WORD", "from the environment")

    of_file = kafka_settings(provided(FILE_PROVIDER, f"${{p:{file}:sasl.password}}"))
    of_directory = kafka_settings(provided(DIRECTORY_PROVIDER, f"${{p:{tmp_path}:word}}"))
    of_environment = kafka_settings(provided(ENVIRONMENT_PROVIDER, "<${p:WORD}>"))

    assert of_file == {"bootstrap.servers": "b:9092", "sasl.password": "from a file"}
    assert of_directory["sasl.password"] == "from a directory"
    assert of_environment["sasl.password"] == "<from the environment>"


def test_a_reference_to_what_is_not_there_is_refused_by_its_name(tmp_path: Path) -> None:
    file = private(tmp_path / "login", "sasl.password=secret\n")

    with pytest.raises(SparkOptionError, match=r"\$\{p:.*:other\}: there is none"):
        kafka_settings(provided(FILE_PROVIDER, f"${{p:{file}:other}}"))
    with pytest.raises(SparkOptionError, match=r"config\.providers\.p\.class: must be one of File"):
        kafka_settings(provided("com.example.Vault", "${p:a:b}"))


def test_a_file_that_others_can_read_provides_nothing(tmp_path: Path) -> None:
    file = private(tmp_path / "login", "sasl.password=secret\n")
    file.chmod(0o644)

    with pytest.raises(SparkOptionError, match="others may read it") as refused:
        kafka_settings(provided(FILE_PROVIDER, f"${{p:{file}:sasl.password}}"))
    assert "secret\n" not in str(refused.value)


def test_text_that_only_looks_like_a_reference_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORD", "another")

    assert kafka_settings(BROKER | {"kafka.sasl.password": "${env:WORD}"})["sasl.password"] == "${env:WORD}"


def test_a_login_comes_from_a_file_or_else_from_the_environment_and_options_stand_above_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = private(tmp_path / "named", "sasl.username=named\nsasl.password=one\n")
    found = private(tmp_path / "found", "sasl.username=found\nsasl.password=two\n")
    monkeypatch.setenv("PENSTOCK_COMMAND_CONFIG", str(found))
    monkeypatch.setenv("PENSTOCK_OPTION_SASL_PASSWORD", "three")

    by_file = kafka_settings(BROKER | {"loginFile": str(named)})
    by_environment = kafka_settings(BROKER)
    above = kafka_settings(BROKER | {"loginFile": str(named), "kafka.sasl.username": "given"})

    assert (by_file["sasl.username"], by_file["sasl.password"]) == ("named", "one")
    assert (by_environment["sasl.username"], by_environment["sasl.password"]) == ("found", "three")
    assert (above["sasl.username"], above["sasl.password"]) == ("given", "one")


def test_clients_credentials_for_tokens_are_taken_from_where_java_has_them() -> None:
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
    handler = "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler"
    common = BROKER | {
        "kafka.sasl.login.callback.handler.class": handler,
        "kafka.sasl.oauthbearer.token.endpoint.url": "https://issuer/token",
    }
    line = f'{module} required clientId="c" clientSecret="s" scope="kafka";'
    separate = {
        "kafka.sasl.mechanism": "OAUTHBEARER",
        "kafka.sasl.oauthbearer.client.credentials.client.id": "c",
        "kafka.sasl.oauthbearer.client.credentials.client.secret": "s",
        "kafka.sasl.oauthbearer.scope": "kafka",
    }

    expected = {
        "bootstrap.servers": "b:9092",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": "https://issuer/token",
        "sasl.oauthbearer.client.id": "c",
        "sasl.oauthbearer.client.secret": "s",
        "sasl.oauthbearer.scope": "kafka",
    }
    assert kafka_settings(common | {"kafka.sasl.jaas.config": line}) == expected
    assert kafka_settings(common | separate) == expected


def test_another_java_class_for_logins_is_refused() -> None:
    with pytest.raises(SparkOptionError, match="a Java class cannot be loaded here"):
        kafka_settings(BROKER | {"kafka.sasl.login.callback.handler.class": "com.example.Handler"})
