import pytest

from penstock.spark.errors import SparkOptionError
from penstock.spark.run.command import find


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("json:dumps", "'json:dumps' is neither a pipeline nor a job"),
        ("json:nothing", "cannot be loaded"),
        ("no_such_module:thing", "cannot be loaded"),
    ],
)
def test_a_name_that_stands_for_nothing_that_can_be_run_is_refused(name: str, words: str) -> None:
    with pytest.raises(SparkOptionError, match="option NAME") as refused:
        find(name)

    assert words in str(refused.value)
