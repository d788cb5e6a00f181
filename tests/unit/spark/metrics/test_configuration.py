import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.spark.errors import SparkOptionError
from penstock.spark.metrics.configuration import Duration, MetricsConfig, load

REFERENCE = Path(__file__).parents[4] / "docs" / "reference" / "pipeline-config.md"

EVERYTHING = """
bootstrap: ${BROKER:localhost:9092}
kafka:
  security.protocol: SASL_SSL
  sasl.password: ${PASSWORD}
windows: [30s, 1h]
percentiles: {ranks: [50, 99.9], method: approximate, accuracy: 500}
lateness: 1h30m
dedupe: no
topics:
  inbound: in
lake:
max_offsets_per_trigger: 5
"""


def written(path: Path, text: str) -> Path:
    file = path / "metrics.yaml"
    file.write_text(text)
    return file


def test_only_the_broker_needs_to_be_given() -> None:
    config = load(MetricsConfig, None, {"bootstrap": "broker:1"}, {})

    assert config.bootstrap == "broker:1"
    assert list(config.windows) == [60_000, 300_000]
    assert int(config.lateness) == 600_000
    assert list(config.percentiles.ranks) == [50, 95, 99]
    assert config.topics.dead_letter == "metrics.inbound.dlq"


def test_a_file_says_everything_with_variables_expanded(tmp_path: Path) -> None:
    config = load(MetricsConfig, written(tmp_path, EVERYTHING), {}, {"PASSWORD": "secret"})

    assert config.bootstrap == "localhost:9092"
    assert config.kafka_options == {
        "kafka.bootstrap.servers": "localhost:9092",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.password": "secret",
    }
    assert list(config.windows) == [30_000, 3_600_000]
    assert list(config.percentiles.ranks) == [50, 99.9]
    assert int(config.lateness) == 5_400_000
    assert not config.dedupe
    assert config.topics.inbound == "in"
    assert config.topics.rollup == "metrics.rollup"


def test_the_command_line_wins_over_the_file(tmp_path: Path) -> None:
    given = {"bootstrap": "b:2", "windows": "2m, 4m", "kafka.sasl.username": "me", "lake.file_bytes": "9"}

    config = load(MetricsConfig, written(tmp_path, EVERYTHING), given, {"PASSWORD": "secret"})

    assert config.bootstrap == "b:2"
    assert list(config.windows) == [120_000, 240_000]
    assert config.kafka["sasl.username"] == "me"
    assert config.lake.file_bytes == 9


@pytest.mark.parametrize(
    ("text", "key", "words"),
    [
        ("windws: [1m]", "windws", "did you mean windows?"),
        ("topics: {inbund: x}", "topics.inbund", "did you mean inbound?"),
        ("lake: {zzz: 1}", "lake.zzz", "known are location"),
        ("lateness: 0s", "config", "lateness must be a millisecond or more"),
        ("percentiles: {ranks: [50, 50.0]}", "config", "percentiles.ranks has a rank twice"),
        ("lateness: soon", "lateness", "'soon' is not a length of time"),
        ("windows: [1m, 1x]", "windows[1]", "'1x' is not a length of time"),
        ("windows: []", "config", "windows must be a list"),
        ("windows: [1m, 60s]", "config", "twice"),
        ("windows: [1500ms]", "config", "whole seconds"),
        ("percentiles: {ranks: [100]}", "percentiles.ranks[0]", "expected float < 100"),
        ("percentiles: {method: guess}", "percentiles.method", "'guess' is none of exact, approximate"),
        ("delivery: twice", "delivery", "'twice' is none of best, at-least-once, exactly-once"),
        ("compact: {tables: [raw, row]}", "compact.tables[1]", "'row' is none of raw, rollup"),
        ("topics: {rollup: metrics.inbound}", "topics", "topics.inbound and topics.rollup are both"),
        ("topics: {inbound: a, dead_letter: a}", "topics", "topics.inbound and topics.dead_letter are both"),
        ("lake: {raw: t, rollup: t}", "lake", "lake.raw and lake.rollup are both 't'"),
        ("lake: {file_bytes: 0}", "lake.file_bytes", "expected int >= 1"),
        ("dedupe: maybe", "dedupe", "expected bool"),
        ("topics: 5", "topics", "expected object"),
        ("bootstrap: ${NOBODY_SET_THIS}", "bootstrap", "NOBODY_SET_THIS"),
        ("- a", "config", "key: value"),
        ("a: [", "config", "not valid YAML"),
    ],
)
def test_what_is_wrong_in_a_file_is_one_line_that_names_the_key(
    tmp_path: Path, text: str, key: str, words: str
) -> None:
    with pytest.raises(SparkOptionError) as refused:
        load(MetricsConfig, written(tmp_path, text), {}, {})

    assert refused.value.option == key
    assert words in refused.value.reason
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("key", ["topics", "bootstrap.x", "lake.fil", "wat", "kafka"])
def test_a_key_of_the_command_line_that_is_not_known_is_refused(key: str) -> None:
    with pytest.raises(SparkOptionError) as refused:
        load(MetricsConfig, None, {key: "1"}, {})

    assert refused.value.option == key


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(SparkOptionError, match="No such file"):
        load(MetricsConfig, tmp_path / "nowhere.yaml", {}, {})


def test_tables_and_checkpoints_live_in_the_state_directory_unless_they_are_told_otherwise() -> None:
    config = load(MetricsConfig, None, {"state_dir": "/s", "lake.raw": "r"}, {})
    elsewhere = load(MetricsConfig, None, {"lake.location": "s3://b/l/", "checkpoint": "s3://b/c"}, {})

    assert config.raw_table == "/s/lake/r"
    assert config.checkpoint_of("q") == "/s/checkpoints/q"
    assert elsewhere.rollup_table == "s3://b/l/rollup"
    assert elsewhere.checkpoint_of("q") == "s3://b/c/q"


@pytest.mark.parametrize("text", ["10m", "1h30m", "500ms", "1d2h3m4s5ms", "0s"])
def test_a_length_of_time_is_written_as_it_is_read(text: str) -> None:
    assert str(Duration.parse(text)) == text


@pytest.mark.parametrize("text", ["", "10", "m", "10 m", "1.5h", "-1m", "10minutes"])
def test_what_is_no_length_of_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a length of time"):
        Duration.parse(text)


def shown(value: Any) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case tuple():
            return f"[{', '.join(map(shown, value))}]"
        case float():
            return f"{value:g}"
        case _:
            return str(value)


def defaults(section: msgspec.Struct, prefix: str = "") -> Iterator[tuple[str, str]]:
    for field in msgspec.structs.fields(section):
        value = getattr(section, field.name)
        if isinstance(value, msgspec.Struct):
            yield from defaults(value, f"{prefix}{field.name}.")
        else:
            yield prefix + field.name, shown(value)


def test_the_reference_has_every_key_and_its_default() -> None:
    rows = re.findall(r"^\| `([\w.]+)` \| (?:`(.*?)`)? ?\| \S", REFERENCE.read_text(), re.MULTILINE)

    assert dict(rows) == dict(defaults(MetricsConfig()))
