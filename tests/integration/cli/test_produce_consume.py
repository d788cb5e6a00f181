import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from kafka import KafkaProducer

from penstock.cli.child import BrokerProcess
from penstock.client import ConsumerOptions, Endpoint, ProducerOptions, TopicConsumer, TopicProducer
from penstock.client.endpoint import ClientError
from penstock.core.protocol.messages.produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
)
from penstock.core.records import CompressionType, Record, murmur2_partition, read_header, write_batch
from penstock.core.records.batch import seal
from tests.support.wire import Wire

Run = Callable[..., subprocess.CompletedProcess[str]]
COMMAND = [sys.executable, "-m", "penstock.cli"]
NOW = 1_700_000_000_000
README = Path(__file__).parents[3] / "README.md"


def lines(count: int) -> bytes:
    return b"".join(b"line %d\n" % number for number in range(count))


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_lines_come_back_as_they_were_sent(run: Run, topic: str, codec: str) -> None:
    run("topic", "create", topic, "--partitions", "1")

    sent = run("produce", topic, "--codec", codec, stdin=lines(500) + b"\nno newline at the end")
    read = run("consume", topic)

    assert (sent.returncode, sent.stdout) == (0, "")
    assert sent.stderr == f"sending to {topic}\n502 records delivered to {topic}\n"
    assert read.returncode == 0
    assert read.stdout.encode() == lines(500) + b"\nno newline at the end\n"


def test_records_are_shown_with_everything_they_have(run: Run, topic: str) -> None:
    run("topic", "create", topic, "--partitions", "4")
    partition = murmur2_partition(b"key", 4)

    sent = run(
        *("produce", topic, "--key-separator", ":", "--header", "trace=7", "--json"),
        stdin="key:größe:1\n".encode() + b"key:\xff\xfe\n",
    )
    read = run("consume", topic, "--json")

    assert json.loads(sent.stdout) == {"topic": topic, "records": 2, "value_bytes": 11}
    first, second = map(json.loads, read.stdout.splitlines())
    assert abs(first.pop("timestamp_ms") - second.pop("timestamp_ms")) < 60_000
    assert first == {
        "topic": topic,
        "partition": partition,
        "offset": 0,
        "key": "key",
        "value": "größe:1",
        "headers": [{"name": "trace", "value": "7"}],
    }
    assert (second["offset"], second["value_base64"]) == (1, "//4=")


def test_keys_go_where_the_java_client_would_put_them(run: Run, topic: str) -> None:
    run("topic", "create", topic, "--partitions", "5")
    keys = [f"key-{number}" for number in range(20)]

    run("produce", topic, "--key-separator", ":", stdin="".join(f"{key}:\n" for key in keys).encode())
    read = [json.loads(line) for line in run("consume", topic, "--json").stdout.splitlines()]

    found = {one["key"]: one["partition"] for one in read}
    assert found == {key: murmur2_partition(key.encode(), 5) for key in keys}


def test_reading_ends_where_the_topic_ended_when_it_began(
    run: Run, topic: str, broker: BrokerProcess
) -> None:
    run("topic", "create", topic, "--partitions", "2")
    run("produce", topic, "--partition", "0", stdin=lines(3))
    run("produce", topic, "--partition", "1", stdin=lines(3_000))
    endpoint = Endpoint(broker.bootstrap)
    late = TopicProducer(endpoint, topic, ProducerOptions())

    read = []
    with TopicConsumer(endpoint, topic, ConsumerOptions(batch_records=10)) as reader:
        for batch in reader.batches():
            read += batch
            for partition in (0, 1) if late.sent.records < 20 else ():
                late.send(b"too late", partition=partition)
        late.finish()

    assert len(read) == 3_003
    assert b"too late" not in {one.value for one in read}


def undecodable_zstd() -> bytearray:
    """Begins as zstd does, and goes on as it must not."""
    batch = write_batch([Record(0, NOW, None, bytes(range(256)) * 2)], codec=CompressionType.ZSTD)
    batch[-60:] = b"\xff" * 60
    return batch


def undecodable_record() -> bytearray:
    """The first records are good, and there are too many for a broker to look at all of them."""
    batch = write_batch([Record(0, NOW, None, b"v%d" % number) for number in range(20)])
    batch[-30] = 0x7F
    return batch


def store(address: tuple[str, int], topic: str, batch: bytearray) -> None:
    """Produce a batch as it is."""
    seal(batch, 0, len(batch))
    part = ProduceRequestPartition(index=0, records=bytes(batch))
    data = (ProduceRequestTopic(name=topic, partition_data=(part,)),)
    with closing(Wire(address)) as wire:
        answer = wire.ask(ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=data), ProduceResponse, 9)
    assert answer.responses[0].partition_responses[0].error_code == 0


@pytest.mark.parametrize("group", [(), ("--group", "readers")], ids=["alone", "in a group"])
@pytest.mark.parametrize("bad", [undecodable_zstd, undecodable_record])
def test_a_batch_that_nobody_can_decode_is_named_and_reading_goes_on(
    run: Run,
    topic: str,
    broker: BrokerProcess,
    bad: Callable[[], bytearray],
    group: tuple[str, ...],
) -> None:
    run("topic", "create", topic, "--partitions", "1")
    address = Endpoint(broker.bootstrap).addresses()[0]
    for batch in (bad(), write_batch([Record(0, NOW, None, b"between")]), bad()):
        store(address, topic, batch)
    run("produce", topic, stdin=b"behind\n")

    read = run("consume", topic, *group)

    offsets = read_header(bad()).record_count
    # librdkafka hands out what comes before the first bad record.
    good = [f"v{number}" for number in range(17 if offsets > 1 else 0)]
    assert read.returncode == 0
    assert read.stdout.splitlines() == [*good, "between", *good, "behind"]
    named = [line for line in read.stderr.splitlines() if "cannot be read" in line]
    assert len(named) == 2
    assert named[0].startswith(f"penstock: {topic}/0: the batch of offset")
    assert named[1].endswith(f"; going on at {2 * offsets + 1}")


def test_a_program_is_told_of_a_batch_that_nobody_can_decode(
    run: Run, topic: str, broker: BrokerProcess
) -> None:
    run("topic", "create", topic, "--partitions", "1")
    endpoint = Endpoint(broker.bootstrap)
    store(endpoint.addresses()[0], topic, undecodable_zstd())

    with (
        TopicConsumer(endpoint, topic, ConsumerOptions()) as reader,
        pytest.raises(ClientError, match=f"{topic}/0: the batch of offset 0 cannot be read: zstd"),
    ):
        list(reader.batches())


def test_a_file_goes_to_the_partition_that_was_named(run: Run, topic: str, tmp_path: Path) -> None:
    run("topic", "create", topic, "--partitions", "3")
    (tmp_path / "lines.txt").write_bytes(lines(3))

    sent = run("produce", topic, "--file", "lines.txt", "--partition", "2", "--acks", "leader")
    inside = run("consume", topic, "--partition", "2", "--key-separator", "|")
    outside = run("consume", topic, "--partition", "1")

    assert sent.returncode == 0
    assert inside.stdout == "|line 0\n|line 1\n|line 2\n"
    assert (outside.returncode, outside.stdout) == (0, "")


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("beginning", ["line 0", "line 1", "line 2", "line 3"]),
        ("end", []),
        ("2", ["line 2", "line 3"]),
        ("1h", ["line 0", "line 1", "line 2", "line 3"]),
        ("2100-01-01T00:00", []),
    ],
)
def test_reading_starts_where_it_is_told(run: Run, topic: str, start: str, expected: list[str]) -> None:
    run("topic", "create", topic, "--partitions", "1")
    run("produce", topic, stdin=lines(4))

    read = run("consume", topic, "--from", start)

    assert (read.returncode, read.stdout.splitlines()) == (0, expected)


def test_somebody_who_types_records_is_told_how_to_end(
    run: Run, topic: str, broker: BrokerProcess, tmp_path: Path
) -> None:
    run("topic", "create", topic, "--partitions", "1")
    ours, theirs = os.openpty()

    with subprocess.Popen(
        [*COMMAND, "produce", topic, "--bootstrap", broker.bootstrap],
        cwd=tmp_path,
        stdin=theirs,
        stderr=subprocess.PIPE,
        text=True,
    ) as typing:
        os.close(theirs)
        assert typing.stderr is not None
        assert typing.stderr.readline() == "one record per line; Ctrl-D ends\n"
        os.write(ours, b"typed\n\x04")
        assert typing.stderr.readline() == f"1 record delivered to {topic}\n"
    os.close(ours)

    assert typing.returncode == 0
    assert run("consume", topic).stdout == "typed\n"


def test_a_key_goes_to_the_same_partition_whichever_client_sends_it(
    run: Run, topic: str, broker: BrokerProcess
) -> None:
    run("topic", "create", topic, "--partitions", "7")
    keys = [f"key {number}" for number in range(40)]
    made = next(line for line in README.read_text().splitlines() if line.startswith("producer = Producer("))
    names: dict[str, Any] = {}

    run("produce", topic, "--key-separator", ":", stdin="".join(f"{key}:cli\n" for key in keys).encode())
    exec(f"from confluent_kafka import Producer\n{made.replace('127.0.0.1:9092', broker.bootstrap)}", names)
    for key in keys:
        names["producer"].produce(topic, key=key, value="readme")
    names["producer"].flush()
    java_like = KafkaProducer(bootstrap_servers=broker.bootstrap)
    for key in keys:
        java_like.send(topic, key=key.encode(), value=b"kafka-python")
    java_like.close()
    read = [json.loads(line) for line in run("consume", topic, "--json").stdout.splitlines()]

    places = {(one["key"], one["partition"]) for one in read}
    assert {one["value"] for one in read} == {"cli", "readme", "kafka-python"}
    assert len(read) == 3 * len(keys)
    assert len(places) == len(keys)
    assert len({partition for _, partition in places}) > 1


@pytest.mark.parametrize("more", [[], ["--group", "TOPIC"], ["--follow"], ["--partition", "0"]], ids=str)
def test_an_offset_behind_every_end_is_refused_with_what_there_is(
    run: Run, topic: str, more: list[str]
) -> None:
    run("topic", "create", topic, "--partitions", "2")
    run("produce", topic, "--partition", "0", stdin=lines(4))

    read = run("consume", topic, "--from", "99999", *(word.replace("TOPIC", topic) for word in more))

    others = "" if "--partition" in more else ", partition 1 is empty"
    assert (read.returncode, read.stdout) == (1, "")
    assert read.stderr == (
        f"penstock: {topic} holds no offset 99999: partition 0 holds offsets 0 to 3{others}\n"
    )


@pytest.mark.parametrize(
    ("arguments", "note"),
    [
        (["--from", "end"], "no records in TOPIC from end on: partition 0 holds offsets 0 to 3"),
        (["--from", "4"], "no records in TOPIC from 4 on: partition 0 holds offsets 0 to 3"),
        (
            ["--from", "2100-01-01T00:00"],
            "no records in TOPIC from 2100-01-01T00:00 on: partition 0 holds offsets 0 to 3",
        ),
        (["--group", "TOPIC"], "no records: group TOPIC has read all of TOPIC"),
    ],
    ids=["end", "the next", "the future", "a group"],
)
def test_reading_nothing_is_explained(run: Run, topic: str, arguments: list[str], note: str) -> None:
    run("topic", "create", topic, "--partitions", "1")
    run("produce", topic, stdin=lines(4))
    run("consume", topic, "--group", topic)

    read = run("consume", topic, *(word.replace("TOPIC", topic) for word in arguments))

    assert (read.returncode, read.stdout) == (0, "")
    assert read.stderr == note.replace("TOPIC", topic) + "\n"


def test_an_empty_topic_is_said_to_be_empty(run: Run, topic: str) -> None:
    run("topic", "create", topic, "--partitions", "1")

    read = run("consume", topic)

    assert (read.returncode, read.stderr) == (0, f"no records in {topic}: partition 0 is empty\n")


def test_a_start_that_was_deleted_is_told_and_the_rest_is_read(
    run: Run, topic: str, broker: BrokerProcess
) -> None:
    run("topic", "create", topic, "--partitions", "1")
    run("produce", topic, stdin=lines(4))
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for deleted in admin.delete_records([TopicPartition(topic, 0, 3)]).values():
        deleted.result(30)

    read = run("consume", topic, "--from", "1")

    assert (read.returncode, read.stdout) == (0, "line 3\n")
    assert read.stderr == "offset 1 is not there any more: partition 0 holds offsets 3 to 3\n"


def test_a_group_goes_on_where_it_was(run: Run, topic: str) -> None:
    run("topic", "create", topic, "--partitions", "1")
    run("produce", topic, stdin=lines(10))

    first = run("consume", topic, "--group", topic, "--count", "4")
    second = run("consume", topic, "--group", topic)
    third = run("consume", topic, "--group", topic)
    again = run("consume", topic, "--group", topic, "--from", "8")

    assert first.stdout.encode() == lines(4)
    assert first.stdout + second.stdout == lines(10).decode()
    assert (third.returncode, third.stdout) == (0, "")
    assert again.stdout == "line 8\nline 9\n"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["consume", "TOPIC"], "topic TOPIC does not exist: `penstock topic list` shows those that do"),
        (["consume", "TOPIC", "--from", "yesterday"], "--from 'yesterday' is not beginning, end, an offset"),
        (
            ["consume", "TOPIC", "--group", "g", "--partition", "0"],
            "--partition and --group exclude each other",
        ),
        (["produce", "TOPIC", "--codec", "rar"], "--codec rar: expected none, gzip"),
        (["produce", "TOPIC", "--acks", "2"], "--acks 2: expected all, leader or none"),
        (["produce", "TOPIC", "--file", "nowhere"], "[Errno 2] No such file or directory: 'nowhere'"),
        (["produce", "TOPIC", "--key-separator", ":"], "no ':' between key and value in: line 0"),
        (["produce", "TOPIC", "-X", "no.such=1"], "librdkafka rejects a setting: no such configuration"),
        (["produce", "a b"], "a b: a record was not delivered ("),
        (["produce", "TOPIC", "--partition", "99", "--timeout", "2"], "TOPIC: a record was not delivered ("),
    ],
    ids=lambda value: "-".join(value)[:40] if isinstance(value, list) else "",
)
def test_what_is_refused_is_one_line(run: Run, topic: str, arguments: list[str], complaint: str) -> None:
    ended = run(*(word.replace("TOPIC", topic) for word in arguments), stdin=lines(2))

    assert (ended.returncode, ended.stdout) == (1, "")
    shown = ended.stderr.removeprefix(f"sending to {topic}\n").removeprefix("sending to a b\n")
    assert shown.startswith("penstock: " + complaint.replace("TOPIC", topic))
    assert shown.count("\n") == 1


def test_a_record_that_is_too_large_is_one_line(run: Run, topic: str) -> None:
    run("topic", "create", topic, "--partitions", "1", "--config", "max.message.bytes=1000")

    ended = run("produce", topic, stdin=b"x" * 5_000 + b"\n")

    assert ended.returncode == 1
    assert "was not delivered (message size too large" in ended.stderr


def test_a_follower_prints_what_comes_until_it_is_interrupted(
    run: Run, topic: str, broker: BrokerProcess, tmp_path: Path
) -> None:
    run("topic", "create", topic, "--partitions", "1")
    run("produce", topic, stdin=b"before\n")
    with subprocess.Popen(
        [*COMMAND, "consume", topic, "--follow", "--group", topic, "--bootstrap", broker.bootstrap],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as following:
        assert following.stdout is not None
        assert following.stdout.readline() == "before\n"

        run("produce", topic, stdin=b"after\n")
        assert following.stdout.readline() == "after\n"
        following.send_signal(signal.SIGINT)
        out, errors = following.communicate(timeout=60)

    assert (following.returncode, out, errors) == (130, "", "penstock: interrupted\n")
    # The interrupt may come after a line is printed and before it counts: then that line comes again.
    assert run("consume", topic, "--group", topic).stdout in ("", "after\n")


def test_a_reader_that_leaves_early_is_not_worth_a_word(
    run: Run, topic: str, broker: BrokerProcess, tmp_path: Path
) -> None:
    run("topic", "create", topic, "--partitions", "1")
    run("produce", topic, stdin=lines(10))
    read, write = os.pipe()
    os.close(read)

    ended = subprocess.run(
        [*COMMAND, "consume", topic, "--group", topic, "--bootstrap", broker.bootstrap],
        cwd=tmp_path,
        stdout=write,
        stderr=subprocess.PIPE,
        timeout=60,
        check=False,
    )
    os.close(write)

    assert ended.stderr == b""
    # What nobody saw was not committed.
    assert run("consume", topic, "--group", topic).stdout.encode() == lines(10)


@pytest.mark.parametrize(
    "arguments",
    [
        ["topic", "list"],
        ["topic", "create", "t"],
        ["group", "list"],
        ["produce", "t"],
        ["consume", "t"],
        ["bench", "produce", "--no-limits"],
    ],
    ids="-".join,
)
def test_a_broker_that_is_not_there_is_one_line(run: Run, arguments: list[str]) -> None:
    ended = run(*arguments, "--bootstrap", "127.0.0.1:1")

    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.splitlines()[-1] == (
        "penstock: no broker at 127.0.0.1:1: connection refused "
        "(`penstock up` starts one, --bootstrap names another)"
    )
