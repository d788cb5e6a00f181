import json
from uuid import UUID

import pytest

from penstock.core.model import PartitionIndex, TopicName, TopicPartition
from penstock.observability import EventLogOptions, LogFormat, LogLevel
from penstock.observability.events import LINE_BYTES_MAX, EventLog

NOON_MS = 1_700_049_600_123  # 2023-11-15 12:00:00.123 UTC


class Paper:
    """A sink that keeps what is written, and refuses while it is full."""

    def __init__(self, is_terminal: bool = False) -> None:
        self.lines: list[bytes] = []
        self.is_full = False
        self.is_terminal = is_terminal

    def write(self, line: bytes) -> bool:
        if not self.is_full:
            self.lines.append(line)
        return not self.is_full


def logging_to(paper: Paper, **options: object) -> EventLog:
    log = EventLog()
    log.configure(EventLogOptions(**options), paper, lambda: NOON_MS)  # type: ignore[arg-type]
    return log


def fields_of(paper: Paper) -> dict[str, object]:
    fields: dict[str, object] = json.loads(paper.lines[-1])
    return fields


def test_an_event_is_one_json_object_a_line_where_there_is_no_terminal() -> None:
    paper = Paper()

    logging_to(paper, context={"node": 1}).warning("replica.left_isr", partition="orders/0", lag_ms=12)

    [line] = paper.lines
    assert line == (
        b'{"time":"2023-11-15T12:00:00.123Z","level":"warning","event":"replica.left_isr",'
        b'"node":1,"partition":"orders/0","lag_ms":12}\n'
    )


def test_an_event_is_text_on_a_terminal() -> None:
    paper = Paper(is_terminal=True)

    logging_to(paper).warning("replica.left_isr", partition="orders/0", why="too slow", lag_ms=12)

    assert paper.lines == [
        b'2023-11-15 12:00:00.123 WARNING replica.left_isr partition=orders/0 why="too slow" lag_ms=12\n'
    ]


@pytest.mark.parametrize(("form", "is_terminal"), [(LogFormat.TEXT, False), (LogFormat.JSON, True)])
def test_the_form_can_be_fixed(form: LogFormat, is_terminal: bool) -> None:
    paper = Paper(is_terminal)

    logging_to(paper, format=form).info("node.started")

    assert paper.lines[0].startswith(b"{") is (form is LogFormat.JSON)


def test_levels_below_the_chosen_one_write_nothing() -> None:
    paper = Paper()
    log = logging_to(paper, level=LogLevel.WARNING)

    log.debug("a.b")
    log.info("a.b")
    log.warning("a.b")
    log.error("a.b")

    assert [json.loads(line)["level"] for line in paper.lines] == ["warning", "error"]
    assert {level.name: tally.count for level, tally in log.written.items()} == {
        "DEBUG": 0,
        "INFO": 0,
        "WARNING": 1,
        "ERROR": 1,
    }


def test_nothing_is_written_before_the_log_is_configured_or_after_it_is_silenced() -> None:
    EventLog().error("a.b", x=1)
    paper = Paper()
    log = logging_to(paper)

    log.silence()
    log.error("a.b")

    assert paper.lines == []


class Broken:
    def __str__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (b"order-7", "order-7"),
        (b"\x00\xff", "0x00ff"),
        (memoryview(b"k" * 100), "k" * 64 + "… 100 bytes"),
        (UUID(int=5), "00000000-0000-0000-0000-000000000005"),
        (TopicPartition(TopicName("orders"), PartitionIndex(3)), "orders/3"),
        (OSError(28, "No space left"), "OSError: [Errno 28] No space left"),
        (LogFormat.JSON, "json"),
        (float("nan"), "nan"),
        (2**63, "9223372036854775808"),
        ([1, (2, b"x")], [1, [2, "x"]]),
        ({1: {2}}, {"1": [2]}),
        (list(range(25)), [*range(20), "… 5 more"]),
        ("x" * 2_000, "x" * 1_000 + "… 2000 characters"),
        (Broken(), "<Broken: RuntimeError when printed>"),
        (None, None),
        (True, True),
    ],
)
def test_any_value_can_be_written(value: object, shown: object) -> None:
    paper = Paper()

    logging_to(paper).info("a.b", value=value)

    assert fields_of(paper)["value"] == shown


def test_an_exception_says_where_it_was_raised() -> None:
    paper = Paper()

    try:
        str(Broken())
    except RuntimeError as error:
        logging_to(paper).error("node.failed", why=error)

    assert str(fields_of(paper)["why"]).startswith("RuntimeError: no [test_events.py:")
    assert str(fields_of(paper)["why"]).endswith(" in __str__]")


def test_a_value_that_contains_itself_is_cut_off() -> None:
    paper = Paper()
    endless: list[object] = []
    endless.append(endless)

    logging_to(paper).info("a.b", value=endless)

    assert fields_of(paper)["value"] == [[["[[...]]"]]]


@pytest.mark.parametrize("form", list(LogFormat))
def test_a_value_cannot_forge_a_second_line(form: LogFormat) -> None:
    paper = Paper()

    logging_to(paper, format=form).info("a.b", value="x\n2023 ERROR forged\u2028\ud800", key=b"\n")

    assert paper.lines[0].count(b"\n") == 1
    assert len(paper.lines[0].decode().splitlines()) == 1


@pytest.mark.parametrize("form", list(LogFormat))
def test_a_line_is_never_longer_than_a_pipe_takes_whole(form: LogFormat) -> None:
    paper = Paper()

    logging_to(paper, format=form).info("a.b", small=1, **{f"field_{i}": "é" * 900 for i in range(9)}, last=2)

    assert len(paper.lines[0]) <= LINE_BYTES_MAX
    if form is not LogFormat.TEXT:
        assert fields_of(paper).items() >= {"small": 1, "last": 2, "truncated": True}.items()


def test_a_field_named_like_a_part_of_the_line_does_not_replace_it() -> None:
    paper = Paper()

    logging_to(paper).info("a.b", time=1, level=2, event=3)

    assert (
        fields_of(paper).items()
        >= {"level": "info", "event": "a.b", "time_": 1, "level_": 2, "event_": 3}.items()
    )


def test_dropped_events_are_owned_up_to_when_the_reader_is_back() -> None:
    paper = Paper()
    log = logging_to(paper)
    paper.is_full = True
    log.info("lost.one")
    log.info("lost.two")

    paper.is_full = False
    log.info("back.again")
    log.info("back.still")

    assert [json.loads(line)["event"] for line in paper.lines] == [
        "back.again",
        "log.events_dropped",
        "back.still",
    ]
    assert json.loads(paper.lines[1])["events"] == 2
    assert log.dropped.count == 2


def test_an_impossible_time_is_written_as_it_is() -> None:
    paper = Paper()
    log = EventLog()
    log.configure(EventLogOptions(), paper, lambda: 10**18)

    log.info("a.b")

    assert fields_of(paper)["time"] == "1000000000000000000Z"
