import pyarrow as pa
import pytest

from penstock.spark.errors import PipelineError, SparkOptionError
from penstock.spark.sink import AtLeastOnceDelivery, ExactlyOnceDelivery, delivery, delivery_for, sink_options
from penstock.spark.sink.batch_commit import BatchCommitter
from penstock.spark.sink.options import refuse_unknown, sink_columns

BROKER = {"kafka.bootstrap.servers": "127.0.0.1:1"}
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def test_a_value_and_a_topic_are_all_that_is_needed() -> None:
    only_value = pa.schema([("value", pa.binary())])

    assert not any(sink_columns(only_value, "t"))
    assert sink_columns(only_value.append(pa.field("topic", pa.string())), None).topic


def test_every_column_of_the_connector_is_known_and_others_are_left_alone() -> None:
    schema = pa.schema(
        [
            ("key", pa.string()),
            ("value", pa.string()),
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("headers", HEADERS),
            ("timestamp", pa.timestamp("us", "UTC")),
            ("offset", pa.int64()),
        ]
    )

    assert all(sink_columns(schema, None))


def test_the_option_topic_wins_over_the_column() -> None:
    schema = pa.schema([("value", pa.binary()), ("topic", pa.string())])

    assert not sink_columns(schema, "fixed").topic


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ([("key", pa.binary())], "no column value; there is no column topic; set the option topic"),
        ([("value", pa.int64()), ("topic", pa.string())], "column value is int64, not string or binary"),
        ([("value", pa.binary()), ("topic", pa.binary())], "column topic is binary, not string"),
        (
            [("value", pa.binary()), ("topic", pa.string()), ("partition", pa.int64())],
            "column partition is int64, not int",
        ),
        (
            [("value", pa.binary()), ("topic", pa.string()), ("headers", pa.list_(pa.string()))],
            "column headers is list<",
        ),
        (
            [("value", pa.binary()), ("topic", pa.string()), ("timestamp", pa.string())],
            "column timestamp is string",
        ),
    ],
)
def test_everything_that_is_wrong_with_a_frame_is_one_line(
    fields: list[tuple[str, pa.DataType]], complaint: str
) -> None:
    with pytest.raises(PipelineError, match="this frame cannot be written to a topic") as refused:
        sink_columns(pa.schema(fields), None)

    assert complaint in str(refused.value)
    assert "\n" not in str(refused.value)


def test_the_options_of_a_sink_are_read_in_any_case() -> None:
    options = sink_options({**BROKER, "TOPIC": " t ", "Delivery": "At-Least-Once"})

    assert (options.topic, options.delivery) == ("t", "at-least-once")


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"topic": ""}, "option topic: is empty"),
        ({"delivery": "once"}, "option delivery: 'once' is none of"),
        (
            {"kafka.acks": "1", "delivery": "at-least-once"},
            "option kafka.acks: '1' would break delivery at-least-once",
        ),
        (
            {"kafka.enable.idempotence": "false", "delivery": "exactly-once"},
            "option kafka.enable.idempotence",
        ),
        ({"kafka.transactional.id": "x"}, "option kafka.transactional.id"),
    ],
)
def test_an_option_that_would_break_the_guarantee_is_refused(given: dict[str, str], complaint: str) -> None:
    with pytest.raises(SparkOptionError) as refused:
        sink_options(BROKER | given)

    assert complaint in str(refused.value)


def test_who_asks_for_less_and_for_no_guarantee_gets_what_was_asked_for() -> None:
    options = sink_options(BROKER | {"kafka.acks": "1", "kafka.linger.ms": "5"})

    assert options.settings["acks"] == "1"
    assert options.settings["enable.idempotence"] == "false"


OAUTH = {**BROKER, "kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "OAUTHBEARER"}


def test_exactly_once_is_refused_with_a_login_that_our_connections_do_not_have() -> None:
    options = sink_options({**OAUTH, "delivery": "exactly-once"})

    with pytest.raises(SparkOptionError) as refused:
        delivery_for(options)

    assert str(refused.value) == (
        "option delivery: exactly-once needs a login with PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512, or with a"
        " certificate; use at-least-once and drop repeats by a natural key"
    )


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "ssl", "SASL_SSL"])
def test_exactly_once_is_delivered_by_encrypted_connections_that_log_in(
    protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BatchCommitter, "is_offered", lambda _: True)
    login = {"kafka.sasl.mechanism": "PLAIN", "kafka.sasl.username": "u", "kafka.sasl.password": "p"}
    options = sink_options(
        {**BROKER, **login, "kafka.security.protocol": protocol, "delivery": "exactly-once"}
    )

    assert isinstance(delivery_for(options), ExactlyOnceDelivery)


def test_exactly_once_is_refused_where_the_broker_has_no_batch_commit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(BatchCommitter, "is_offered", lambda _: False)

    with pytest.raises(SparkOptionError, match=r"the broker at 127\.0\.0\.1:1 does not have"):
        delivery_for(sink_options({**BROKER, "delivery": "exactly-once"}))


def test_the_best_delivery_with_tokens_is_at_least_once_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    assert isinstance(delivery_for(sink_options(OAUTH)), AtLeastOnceDelivery)
    assert "delivery is at-least-once: exactly-once needs a login with" in caplog.text


def test_a_broker_that_does_not_respond_is_not_taken_for_one_without_batch_commit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(delivery, "OFFER_PATIENCE_MS", 0)

    with pytest.raises(PipelineError, match=r"no broker at 127\.0\.0\.1:1"):
        delivery_for(sink_options(BROKER))


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"txnAppId": "a"}, "option txnAppId: goes together with txnVersion"),
        ({"txnAppId": "a#b", "txnVersion": "1"}, "has a # in it"),
        ({"txnAppId": "a", "txnVersion": "x"}, "option txnVersion: 'x' is not a whole number"),
    ],
)
def test_a_job_is_known_by_a_name_and_a_number(given: dict[str, str], complaint: str) -> None:
    assert sink_options(BROKER | {"txnAppId": "a", "txnVersion": "7"}).application == ("a", 7)

    with pytest.raises(SparkOptionError) as refused:
        sink_options(BROKER | given)

    assert complaint in str(refused.value)


def test_an_option_that_nobody_would_look_at_is_refused_by_name() -> None:
    with pytest.raises(SparkOptionError, match=r"option delivry: is not known; did you mean delivery\?"):
        refuse_unknown(BROKER | {"delivry": "exactly-once"})
    with pytest.raises(
        SparkOptionError, match=r"option startingOffsets: is not known; known are topic, delivery"
    ):
        refuse_unknown(BROKER | {"startingOffsets": "earliest"})


def test_options_of_spark_and_of_the_official_connector_are_let_pass() -> None:
    refuse_unknown(BROKER | {"TOPIC": "t", "checkpointlocation": "/c", "path": "p", "includeHeaders": "true"})
