"""Positions as Spark keeps them."""

import json

from penstock.spark.lake.source import LakeOffset, beginning_of, position_from_json


def test_the_keys_of_a_position_are_sorted_since_spark_compares_text() -> None:
    position = LakeOffset("table-id", 3, 5, 7, snapshot=False)

    text = json.dumps(position.to_json())

    assert text == json.dumps(position.to_json(), sort_keys=True)
    assert position_from_json(json.loads(text)) == position


def test_a_start_made_up_anew_gives_way_to_the_end_that_was_kept() -> None:
    kept = LakeOffset("id", 3, 4, 0, snapshot=False)
    made_up = LakeOffset("id", 9, 9, 0, snapshot=True)

    assert beginning_of(made_up, kept) == LakeOffset("id", 3, 3, 0, snapshot=True)
    assert beginning_of(kept, LakeOffset("id", 3, 8, 1, snapshot=False)) == kept
