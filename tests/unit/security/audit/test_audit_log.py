"""What the audit log writes, when, and what happens if it cannot."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from penstock.core.records import read_records
from penstock.security import ANONYMOUS, Session
from penstock.security.audit import AuditDecision, AuditEntry, AuditLog
from penstock.security.audit.entry import entry_line, entry_of
from penstock.security.audit.file import AuditFile, read_lines
from penstock.security.audit.log import (
    BATCH_MAX,
    BUFFER_MAX,
    COUNTED_MS,
    FLUSH_MS,
    KINDS_MAX,
    OTHER_REFUSALS,
    REFUSALS_MAX,
    RETRY_MS,
    ROWS_MAX,
)
from tests.support.manual_runtime import HandSyncs, HandTimers, hand_runtime
from tests.support.recorded_events import recorded_events

SESSION = Session(ANONYMOUS, "PLAINTEXT", "client", "10.0.0.1")


class Topic:
    """Keeps what comes for the topic."""

    def __init__(self) -> None:
        self.batches: list[tuple[bytearray, int]] = []

    def append(self, batches: Any) -> int:
        self.batches += batches
        return 0


class Desk:
    """An audit log in a directory, and time that the test lets pass."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.timers = HandTimers()
        self.topic = Topic()
        runtime = hand_runtime(self.timers, HandSyncs())
        self.log = AuditLog(runtime, 7, AuditFile(str(directory), 1 << 24, 3), self.topic)

    def entry(
        self, name: str, decision: AuditDecision = AuditDecision.REFUSED, client: str = "client"
    ) -> AuditEntry:
        session = SESSION._replace(client_id=client)
        return entry_of(session, self.log.now_ms, "Produce", "write", ("topic", name), decision)

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in read_lines(str(self.directory))]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "audit")


def test_entries_are_written_together_after_a_moment(desk: Desk) -> None:
    desk.log.record(desk.entry("a"))
    desk.log.record(desk.entry("b"))
    assert not desk.directory.exists()

    desk.timers.pass_ms(FLUSH_MS)

    assert [(line["node"], line["resource"], line["count"]) for line in desk.lines()] == [
        (7, "a", 1),
        (7, "b", 1),
    ]


def test_the_first_of_a_kind_is_written_and_the_others_are_counted(desk: Desk) -> None:
    for _ in range(100):
        desk.log.repeat(("a",), desk.entry("a"))
        desk.timers.pass_ms(10)
    desk.timers.pass_ms(FLUSH_MS)
    assert [line["count"] for line in desk.lines()] == [1]

    desk.timers.pass_ms(COUNTED_MS + 2_000)

    first, rest = desk.lines()
    assert (rest["count"], rest["resource"]) == (99, "a")
    assert rest["until"] > first["time"] == rest["time"]


def test_a_kind_that_does_not_come_again_has_one_line(desk: Desk) -> None:
    desk.log.repeat(("a",), desk.entry("a"))

    desk.timers.pass_ms(3 * COUNTED_MS)

    assert len(desk.lines()) == 1


def test_names_that_are_made_up_have_one_line_beyond_the_first_of_a_minute(desk: Desk) -> None:
    def refuse(name: str, principal: str = "User:bob", api: str = "Metadata") -> None:
        entry = desk.entry(name)._replace(principal=principal, api=api)
        desk.log.repeat((principal, api, name), entry)

    for number in range(REFUSALS_MAX + 5_000):
        refuse(f"made-up-{number}")
    refuse("made-up-0")
    # What others are refused, and the same one elsewhere, is told whole.
    refuse("secret", principal="User:eve")
    refuse("secret", api="Fetch")
    desk.timers.pass_ms(COUNTED_MS + 2_000)

    lines = desk.lines()
    others = [line for line in lines if line["resource"] is None]
    assert len(lines) == REFUSALS_MAX + 4
    assert [(line["count"], line["principal"], line["details"]) for line in others] == [
        (5_000, "User:bob", [OTHER_REFUSALS])
    ]
    assert sorted((line["principal"], line["api"]) for line in lines if line["resource"] == "secret") == [
        ("User:bob", "Fetch"),
        ("User:eve", "Metadata"),
    ]
    # Every refusal is in a line.
    assert sum(line["count"] for line in lines) == REFUSALS_MAX + 5_003

    # And after the minute names have lines again.
    refuse("later")
    desk.timers.pass_ms(FLUSH_MS)
    assert desk.lines()[-1]["resource"] == "later"


def test_what_is_allowed_is_not_bounded_with_what_is_refused(desk: Desk) -> None:
    for number in range(REFUSALS_MAX + 50):
        name = f"topic-{number}"
        desk.log.repeat((name,), desk.entry(name, AuditDecision.ALLOWED))
    desk.timers.pass_ms(FLUSH_MS)

    assert len({line["resource"] for line in desk.lines()}) == REFUSALS_MAX + 50


def test_data_is_one_line_a_minute(desk: Desk) -> None:
    for _ in range(5):
        for _ in range(1_000):
            desk.log.count(("a",), lambda: desk.entry("a", AuditDecision.ALLOWED))
        desk.timers.pass_ms(COUNTED_MS + 2_000)

    assert [line["count"] for line in desk.lines()] == [1_000] * 5


def test_kinds_that_are_counted_are_bounded_and_nothing_is_lost(desk: Desk) -> None:
    for number in range(KINDS_MAX + 50):
        desk.log.count((number,), lambda: desk.entry("a", AuditDecision.ALLOWED))

    desk.timers.pass_ms(FLUSH_MS)
    assert len(desk.lines()) == 50
    desk.timers.pass_ms(COUNTED_MS + 2_000)
    assert len(desk.lines()) == KINDS_MAX + 50


def test_a_full_buffer_drops_entries_and_says_so_everywhere(desk: Desk) -> None:
    with recorded_events() as events:
        for _ in range(BUFFER_MAX + 3):
            desk.log.record(desk.entry("a"))

    assert desk.log.metrics.dropped.of("file").count == 3
    assert events.named("audit.entries_dropped")[0]["target"] == "file"

    desk.timers.pass_ms(FLUSH_MS)
    (gap,) = [line for line in desk.lines() if line["decision"] == "dropped"]
    assert gap["count"] == 3
    assert len(desk.lines()) == BUFFER_MAX + 1


def test_a_log_that_cannot_be_written_is_written_later(desk: Desk) -> None:
    desk.directory.write_text("in the way")
    with recorded_events() as events:
        desk.log.record(desk.entry("a"))
        desk.timers.pass_ms(FLUSH_MS + 3 * RETRY_MS)

        assert len(events.named("audit.not_written")) == 1
        assert desk.log.metrics.failures.of().count > 1
        desk.directory.unlink()
        desk.log.record(desk.entry("b"))
        desk.timers.pass_ms(RETRY_MS)

        assert [line["resource"] for line in desk.lines()] == ["a", "b"]
        assert len(events.named("audit.written_again")) == 1
    assert desk.log.metrics.dropped.of("file").count == 0


def test_entries_about_one_request_need_no_room_in_the_buffer(desk: Desk) -> None:
    many = BUFFER_MAX + 5_000
    names = [str(number) for number in range(many)]
    for _ in range(BUFFER_MAX):
        desk.log.record(desk.entry("a"))

    desk.log.record_all(map(desk.entry, names), many)
    desk.timers.pass_ms(FLUSH_MS)

    found = [line["resource"] for line in desk.lines()]
    assert [name for name in found if name != "a"] == names
    assert len(found) == BUFFER_MAX + many
    assert desk.log.metrics.dropped.of("file").count == 0


def test_entries_about_a_request_are_written_once_after_a_failure(desk: Desk) -> None:
    names = [str(number) for number in range(3 * BATCH_MAX)]
    desk.directory.write_text("in the way")
    desk.log.record_all(map(desk.entry, names), len(names))
    desk.timers.pass_ms(FLUSH_MS + RETRY_MS)
    desk.directory.unlink()

    desk.timers.pass_ms(RETRY_MS)

    assert [line["resource"] for line in desk.lines()] == names


def test_requests_that_wait_for_their_entries_are_bounded_and_the_log_says_so(desk: Desk) -> None:
    for name in ("a", "b", "c"):
        desk.log.record_all(iter([desk.entry(name)]), ROWS_MAX // 2)

    desk.timers.pass_ms(FLUSH_MS)

    assert [(line["resource"], line["count"]) for line in desk.lines()] == [
        (None, ROWS_MAX // 2),
        ("a", 1),
        ("b", 1),
    ]
    desk.log.record_all(iter([desk.entry("d")]), ROWS_MAX)
    desk.timers.pass_ms(FLUSH_MS)
    assert desk.lines()[-1]["resource"] == "d"


def test_a_stop_writes_what_is_counted(desk: Desk) -> None:
    stopped: list[bool] = []
    desk.log.record(desk.entry("a"))
    desk.log.count(("b",), lambda: desk.entry("b", AuditDecision.ALLOWED))

    desk.log.stop(lambda: stopped.append(True))
    desk.timers.run()

    assert [line["resource"] for line in desk.lines()] == ["a", "b"]
    assert stopped == [True]


def test_a_stop_does_not_wait_for_a_disk_for_ever(desk: Desk) -> None:
    stopped: list[bool] = []
    desk.directory.write_text("in the way")
    desk.log.record(desk.entry("a"))

    desk.log.stop(lambda: stopped.append(True))
    desk.timers.pass_ms(10_000)

    assert stopped == [True]
    assert desk.log.metrics.dropped.of("file").count == 1


def test_the_topic_gets_what_the_file_has(desk: Desk) -> None:
    desk.log.record(desk.entry("a"))
    desk.log.record(desk.entry("b"))
    desk.timers.pass_ms(FLUSH_MS)

    ((batch, count),) = desk.topic.batches
    records = list(read_records(batch))
    assert count == 2
    assert [json.loads(record.value or b"") for record in records] == desk.lines()
    assert {record.key for record in records} == {b"User:ANONYMOUS"}


@pytest.mark.parametrize("name", ["a\nb", "\x1b[2J", "\x9b2J", "\u2028", '"},{"', "\ud7ff\x00"])
def test_what_a_client_calls_itself_cannot_break_a_line(desk: Desk, name: str) -> None:
    line = entry_line(desk.entry("t", client=name), 1)

    assert re.fullmatch(rb"[ -~]+\n", line)
    assert json.loads(line)["client_id"] == name


def test_names_are_cut(desk: Desk) -> None:
    line = entry_line(desk.entry("t" * 10_000, client="c" * 10_000), 1)

    assert len(line) < 2_000
