"""Where a consumer keeps how far it has read, other than at the broker.

    FileOffsets   a file per partition in a directory
    SqlOffsets    rows of a table, written in the same transaction as the results: exactly once

`Consumer(offset_store=…)` reads its positions from the store whenever partitions are assigned, and
`commit` writes them there. A store of one's own has `load` and `save`.

Exactly once into SQL: results and offsets are committed together or not at all, so a crash repeats
only what left nothing behind. What is left are zombies: a consumer that was cut off, while another has
its partitions. Whoever is assigned a partition claims its row first; a zombie's `save` finds
another claim there and raises OffsetConflict, which rolls its results back.

    assigned      UPDATE … SET claim = 'mine'; SELECT next_offset          committed at once
    a batch       INSERT results; UPDATE … WHERE claim = 'mine'            one transaction
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from penstock.client.endpoint import ClientError
from penstock.client.message import TopicPartition

CLAIM_BYTES = 8
_PLACEHOLDERS = {"qmark": "?", "format": "%s", "pyformat": "%s"}


class OffsetConflict(ClientError):
    """Another consumer has claimed the partition: what this one did must be rolled back."""


class OffsetStore(Protocol):
    """Offsets of the next messages to be read."""

    # Whether `save` only takes part in a transaction that the program commits.
    is_transactional: bool

    def load(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The offsets of these partitions, which are ours from now on; without those that have none."""
        ...

    def save(self, offsets: Mapping[TopicPartition, int]) -> None: ...


class FileOffsets:
    """A file per partition, replaced as a whole; members of one group may share the directory."""

    is_transactional = False

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self._directory = Path(directory)
        self._directory.mkdir(parents=True, exist_ok=True)

    def load(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offsets that the files hold."""
        found = {}
        for partition in partitions:
            try:
                text = self._path(partition).read_text(encoding="ascii")
            except FileNotFoundError:
                continue
            try:
                found[partition] = int(text)
            except ValueError:
                raise ClientError(f"{self._path(partition)} holds no offset: {text[:40]!r}") from None
        return found

    def save(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Write the offsets; they survive a power failure."""
        for partition, offset in offsets.items():
            path = self._path(partition)
            draft = path.with_name(f"{path.name}.new")
            with draft.open("w", encoding="ascii") as file:
                file.write(f"{offset}\n")
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
        directory = os.open(self._directory, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def _path(self, partition: TopicPartition) -> Path:
        # As the broker names directories; a topic's name has no slash.
        return self._directory / f"{partition.topic}-{partition.partition}"


class SqlOffsets:
    """Rows of a table, in the transaction of a DB-API connection that the program commits.

    The connection is the consumer's own: `load` commits its claim, so messages must be polled outside
    of transactions. The table is created if it is missing.
    """

    is_transactional = True

    def __init__(
        self,
        connection: Any,
        group: str,
        *,
        table: str = "penstock_offsets",
        paramstyle: str = "qmark",
    ) -> None:
        if paramstyle not in _PLACEHOLDERS:
            raise ClientError(f"paramstyle is one of {', '.join(_PLACEHOLDERS)}, not {paramstyle!r}")
        if not table.replace("_", "").replace(".", "").isalnum():
            raise ClientError(f"not the name of a table: {table!r}")
        self._connection = connection
        self._group = group
        self._table = table
        self._mark = _PLACEHOLDERS[paramstyle]
        self._claim = os.urandom(CLAIM_BYTES).hex()
        self._execute(
            f"CREATE TABLE IF NOT EXISTS {table} (group_id VARCHAR(255) NOT NULL, "
            "topic VARCHAR(255) NOT NULL, part INTEGER NOT NULL, next_offset BIGINT, "
            "claim VARCHAR(32) NOT NULL, PRIMARY KEY (group_id, topic, part))"
        )
        connection.commit()

    def load(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Claim the partitions, then read their offsets."""
        if getattr(self._connection, "in_transaction", False):
            raise ClientError("messages must be polled outside of the connection's transactions")
        found = {}
        for partition in partitions:
            # The claim first: it waits for a transaction of the former owner, whose offset then shows.
            if not self._update("claim", self._claim, partition):
                self._execute(
                    f"INSERT INTO {self._table} (group_id, topic, part, claim) "
                    f"VALUES ({', '.join([self._mark] * 4)})",
                    (*self._row(partition), self._claim),
                )
            cursor = self._execute(
                f"SELECT next_offset FROM {self._table} WHERE {self._where()}", self._row(partition)
            )
            row = cursor.fetchone()
            if row is not None and row[0] is not None:
                found[partition] = int(row[0])
        self._connection.commit()
        return found

    def save(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Write the offsets into the open transaction; OffsetConflict if a partition is another's."""
        for partition, offset in offsets.items():
            if not self._update("next_offset", offset, partition, claim=self._claim):
                raise OffsetConflict(f"{partition}: another consumer of group {self._group} has claimed it")

    def _update(
        self, column: str, value: object, partition: TopicPartition, claim: str | None = None
    ) -> bool:
        condition, values = self._where(), self._row(partition)
        if claim is not None:
            condition, values = f"{condition} AND claim = {self._mark}", (*values, claim)
        cursor = self._execute(
            f"UPDATE {self._table} SET {column} = {self._mark} WHERE {condition}", (value, *values)
        )
        return bool(cursor.rowcount == 1)

    def _where(self) -> str:
        return f"group_id = {self._mark} AND topic = {self._mark} AND part = {self._mark}"

    def _row(self, partition: TopicPartition) -> tuple[object, ...]:
        return (self._group, partition.topic, partition.partition)

    def _execute(self, statement: str, values: tuple[object, ...] = ()) -> Any:
        cursor = self._connection.cursor()
        cursor.execute(statement, values)
        return cursor
