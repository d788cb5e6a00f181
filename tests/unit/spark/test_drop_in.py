"""What the driver says to Spark in place of what Spark refuses."""

import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from penstock.spark import drop_in

ROOT = Path(__file__).parents[3]


class Mode:
    def __init__(self, name: str) -> None:
        self._name = name

    def name(self) -> str:
        return self._name


class JavaWriter:
    def __init__(self, source: str, mode: str) -> None:
        self._source, self._mode = source, mode

    def source(self) -> str:
        return self._source

    def curmode(self) -> Mode:
        return Mode(self._mode)


class Writer:
    """A writer of pyspark, as far as it matters."""

    def __init__(self, source: str = "penstock", mode: str = "ErrorIfExists") -> None:
        self._jwrite = JavaWriter(source, mode)
        self.saved: list[str | None] = []
        self.started: list[str | None] = []
        self.batches: Any = None

    def foreachBatch(self, function: Any) -> None:  # noqa: N802
        self.batches = function


@pytest.mark.parametrize(
    ("writer", "given", "saved"),
    [
        (Writer(), {}, "append"),
        (Writer(), {"mode": "overwrite"}, "overwrite"),
        (Writer(mode="Overwrite"), {}, None),
        (Writer("parquet"), {}, None),
        (Writer("parquet"), {"format": "penstock"}, "append"),
    ],
)
def test_only_a_topic_that_is_written_without_a_mode_is_appended_to(
    writer: Writer, given: dict[str, str], saved: str | None
) -> None:
    def save(writer: Writer, path: str | None, form: str | None, mode: str | None) -> None:
        writer.saved.append(mode)

    drop_in._save(save, writer, **given)

    assert writer.saved == [saved]


@pytest.mark.parametrize(
    ("form", "mode", "by_batch"),
    [("penstock", "update", True), ("penstock", "complete", False), ("console", "update", False)],
)
def test_only_a_topic_in_update_mode_is_written_batch_by_batch(form: str, mode: str, by_batch: bool) -> None:
    writer = Writer()

    def keep(writer: Writer, *arguments: str, **named: str) -> Writer:
        return writer

    def start(writer: Writer, path: str | None, form: str | None, mode: str | None) -> None:
        writer.started.append(form)

    drop_in._note("format", keep, writer, form)
    drop_in._note("outputMode", keep, writer, outputMode=mode)
    drop_in._note("option", keep, writer, "topic", "t")
    drop_in._note("options", keep, writer, **{"checkpointLocation": "/c", "kafka.acks": "all"})
    drop_in._start(start, writer)

    assert writer.started == [None]
    assert (writer.batches is not None) == by_batch
    if by_batch:
        assert isinstance(writer.batches, partial)
        assert writer.batches.args == ({"topic": "t", "kafka.acks": "all"},)


def test_the_page_lists_what_differs() -> None:
    page = (ROOT / "docs/reference/spark-connector.md").read_text()
    differences = json.loads((ROOT / "tests/spark/connector/guide_differences.json").read_text())

    assert set(re.findall(r"^\| `(\w+)`", page, re.MULTILINE)) == set(differences)
