"""Offsets as JSON: the official connector's form, always written the same."""

import json

import pytest

from penstock.spark.errors import PipelineError
from penstock.spark.source import SourceOffsets, offsets_behind_latest, read_offsets


def test_offsets_are_written_as_the_official_connector_does_in_numeric_order() -> None:
    positions = {("b", 10): 7, ("b", 2): 5, ("a", 0): 3}

    written = SourceOffsets(positions).as_json()

    assert json.dumps(written) == '{"a": {"0": 3}, "b": {"2": 5, "10": 7}}'


def test_the_order_in_which_partitions_were_found_does_not_show() -> None:
    one = SourceOffsets({("a", 0): 1, ("a", 1): 2}, {"a": "x"})
    other = SourceOffsets({("a", 1): 2, ("a", 0): 1}, {"a": "x"})

    assert json.dumps(one.as_json()) == json.dumps(other.as_json())


def test_a_topics_id_is_an_entry_without_partitions() -> None:
    offsets = SourceOffsets({("a", 0): 1}, {"a": "Wm0-_c"})

    written = offsets.as_json()

    assert written == {"a": {"0": 1}, "a@Wm0-_c": {}}
    assert read_offsets(written) == offsets


def test_an_id_of_a_topic_without_partitions_is_left_out() -> None:
    assert SourceOffsets({("a", 0): 1}, {"a": "", "b": "x"}).as_json() == {"a": {"0": 1}}


@pytest.mark.parametrize(
    "written", [{"version": 3}, {"a": {"x": 1}}, {"a": {"0": "1"}}, {"a": {"0": True}}, 5]
)
def test_a_checkpoint_of_another_source_is_told_from_offsets(written: object) -> None:
    with pytest.raises(PipelineError, match="belongs to a query on another source"):
        read_offsets(written)


def test_ids_differ_only_where_both_are_known() -> None:
    known, changed, unknown = (SourceOffsets({("a", 0): 1}, ids) for ids in ({"a": "x"}, {"a": "y"}, {}))

    assert known.differs_from(changed, "a")
    assert not known.differs_from(unknown, "a")
    assert not known.differs_from(known, "a")


def test_how_far_a_query_is_behind_is_worked_out_from_its_progress() -> None:
    end, latest = '{"a": {"0": 6, "1": 2}, "a@id": {}}', '{"a": {"0": 10, "1": 2, "2": 3}}'

    assert offsets_behind_latest(end, latest) == {
        "avgOffsetsBehindLatest": str(4 / 3),
        "maxOffsetsBehindLatest": "4",
        "minOffsetsBehindLatest": "0",
    }
    assert offsets_behind_latest(None, latest) == {}
