import pytest

from penstock.cli.local_cluster import is_routine
from penstock.observability.events import LogLevel, json_line, text_line


@pytest.mark.parametrize("encode", [json_line, text_line], ids=["json", "text"])
@pytest.mark.parametrize("level", LogLevel)
def test_events_up_to_info_are_routine(encode: type, level: LogLevel) -> None:
    line = encode(1_700_000_000_000, level, "node.stopped", {"node": 1, "level_of": "warning"}).decode()

    assert is_routine(line) == (level <= LogLevel.INFO)


@pytest.mark.parametrize("line", ["penstock: cannot listen on :1", "warning: INFO is no level", ""])
def test_what_is_no_event_is_never_routine(line: str) -> None:
    assert not is_routine(line)
