import pytest

from penstock.spark.errors import SparkOptionError
from penstock.spark.run.command import pairs


def test_pairs_are_taken_apart_at_the_first_equals_sign_and_a_later_one_wins() -> None:
    assert pairs("set", ["a=1", "b=x=y", "a=2", "c="]) == {"a": "2", "b": "x=y", "c": ""}


@pytest.mark.parametrize("text", ["", "a", "=1"])
def test_what_is_no_pair_is_refused_with_the_option_named(text: str) -> None:
    with pytest.raises(SparkOptionError, match="option conf: not a key=value"):
        pairs("conf", [text])
