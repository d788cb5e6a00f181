"""Positions kept by the program: in files, and in a database together with its results."""

import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from penstock.client import (
    ClientError,
    Consumer,
    FileOffsets,
    InvalidProperty,
    OffsetConflict,
    Producer,
    SqlOffsets,
    TopicPartition,
)

SECONDS = 30.0
IDLE = 3.0
# Only there to end a test that has failed.
TURNS_MAX = 10
EXAMPLE = Path(__file__).parents[3] / "examples" / "exactly_once_sql.py"
RECORDS = 1_000
PARTITION = TopicPartition("orders", 3)
OTHER = TopicPartition("orders", 4)
# A child that copies in small transactions, and kills itself at a step of its work with the database.
COPY = """
import os, runpy, signal, sqlite3, sys

class Fragile(sqlite3.Connection):
    left = int(sys.argv[4])

    def step(self):
        Fragile.left -= 1
        if not Fragile.left:
            os.kill(os.getpid(), signal.SIGKILL)

    def executemany(self, *arguments):
        self.step()
        return super().executemany(*arguments)

    def commit(self):
        self.step()
        super().commit()
        self.step()

    def cursor(self):
        self.step()
        return super().cursor()

    def __exit__(self, *arguments):
        self.step()
        super().__exit__(*arguments)
        self.step()

example = runpy.run_path(sys.argv[1])
example["copy"].__globals__["IDLE_SECONDS"] = float(sys.argv[5])
example["copy"](sys.argv[2], sqlite3.connect(sys.argv[3], factory=Fragile), 20)
"""


def fill(bootstrap: str, topic: str, values: list[str]) -> None:
    with Producer(bootstrap_servers=bootstrap) as producer:
        for value in values:
            producer.send(topic, value, partition=0)


def test_files_hold_offsets_and_say_what_is_wrong_with_them(tmp_path: Path) -> None:
    store = FileOffsets(tmp_path / "offsets")

    assert store.load([PARTITION]) == {}
    store.save({PARTITION: 17, OTHER: 0})
    store.save({PARTITION: 18})

    assert FileOffsets(tmp_path / "offsets").load([PARTITION, OTHER]) == {PARTITION: 18, OTHER: 0}
    (tmp_path / "offsets" / "orders-3").write_text("soon")
    with pytest.raises(ClientError, match="orders-3 holds no offset: 'soon'"):
        store.load([PARTITION])


def test_a_consumer_goes_on_where_its_files_say(bootstrap: str, topic: str, tmp_path: Path) -> None:
    fill(bootstrap, topic, ["a", "b", "c"])
    where = TopicPartition(topic, 0)

    def read(count: int) -> list[bytes | None]:
        with Consumer(bootstrap_servers=bootstrap, offset_store=FileOffsets(tmp_path)) as consumer:
            consumer.assign([where])
            # Nothing is stored at first, and the end is where librdkafka would begin.
            if not list(tmp_path.iterdir()):
                consumer.assign({where: 0})
            return [next(consumer).value for _ in range(count)]

    assert read(2) == [b"a", b"b"]
    assert FileOffsets(tmp_path).load([where]) == {where: 2}
    assert read(1) == [b"c"]


def test_offsets_in_sql_go_with_the_transaction(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "db")
    store = SqlOffsets(connection, "g")

    assert store.load([PARTITION]) == {}
    with connection:
        store.save({PARTITION: 5})
    store.save({PARTITION: 9})
    with pytest.raises(ClientError, match="outside of the connection's transactions"):
        store.load([PARTITION])
    connection.rollback()

    assert store.load([PARTITION, OTHER]) == {PARTITION: 5}
    assert SqlOffsets(connection, "another group").load([PARTITION]) == {}
    connection.close()


def test_a_zombie_cannot_write_what_another_has_claimed(tmp_path: Path) -> None:
    with (
        closing(sqlite3.connect(tmp_path / "db")) as first,
        closing(sqlite3.connect(tmp_path / "db")) as second,
    ):
        zombie, owner = SqlOffsets(first, "g"), SqlOffsets(second, "g")
        zombie.load([PARTITION, OTHER])
        with first:
            zombie.save({PARTITION: 5, OTHER: 6})

        assert owner.load([PARTITION]) == {PARTITION: 5}
        with (
            pytest.raises(OffsetConflict, match="orders/3: another consumer of group g has claimed it"),
            first,
        ):
            zombie.save({OTHER: 8, PARTITION: 7})

        assert zombie.load([OTHER]) == {OTHER: 6}
        with second:
            owner.save({PARTITION: 7})


def test_after_a_rollback_a_rewind_reads_the_same_messages_again(
    bootstrap: str, topic: str, tmp_path: Path
) -> None:
    fill(bootstrap, topic, ["a", "b", "c"])
    where = TopicPartition(topic, 0)
    connection = sqlite3.connect(tmp_path / "db")

    with Consumer(bootstrap_servers=bootstrap, offset_store=SqlOffsets(connection, "g")) as consumer:
        consumer.assign({where: 0})
        first = consumer.poll_batch(1, SECONDS)
        with connection:
            consumer.commit()
        second = consumer.poll_batch(1, SECONDS)
        consumer.commit()
        # As if the database had refused to commit.
        connection.rollback()
        consumer.rewind()
        again = consumer.poll_batch(1, SECONDS)

        assert [message.value for message in first + second + again] == [b"a", b"b", b"b"]
        with pytest.raises(ClientError, match="process cannot commit offsets in the program's transactions"):
            consumer.process(print)
    with pytest.raises(InvalidProperty, match=r"enable\.auto\.commit: the program commits"):
        Consumer(offset_store=SqlOffsets(connection, "g"), enable_auto_commit=True)
    connection.close()


def test_every_record_is_in_the_table_once_however_often_the_reader_is_killed(
    bootstrap: str, tmp_path: Path
) -> None:
    topic = "example-sql-orders"
    with Producer(bootstrap_servers=bootstrap, partitioner="round-robin") as producer:
        for number in range(RECORDS):
            producer.send(topic, str(number), "k")
    database = tmp_path / "db"
    command: list[Any] = [sys.executable, "-c", COPY, EXAMPLE, bootstrap, database]

    # From the claims of the partitions to the second batch: before and after everything that is written.
    for step in range(13, 18):
        killed = subprocess.run([*command, str(step), str(SECONDS)], check=False, timeout=120)
        assert killed.returncode == -signal.SIGKILL
    rows: list[tuple[str, str]] = []
    for _ in range(TURNS_MAX):
        # On a busy machine the group may take longer to form than this.
        subprocess.run([*command, "0", str(IDLE)], check=True, timeout=120)
        with closing(sqlite3.connect(database)) as connection:
            rows = connection.execute("SELECT id, content FROM orders").fetchall()
        if len(rows) >= RECORDS:
            break

    assert sorted(int(content) for _, content in rows) == list(range(RECORDS))
    assert len({name for name, _ in rows}) == RECORDS
