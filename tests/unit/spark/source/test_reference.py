"""The reference page names every option, and none that does not exist."""

import re
from pathlib import Path

from penstock.spark.source.options import OPTIONS, WITHOUT_MEANING

PAGE = Path(__file__).parents[4] / "docs" / "reference" / "spark-source.md"


def test_the_page_lists_the_options_that_there_are() -> None:
    rows = PAGE.read_text().split("## Options")[1].split("\n## ")[0]

    listed = re.findall(r"^\| `([\w.*]+)`", rows, re.MULTILINE)

    assert sorted(name for name in listed if not name.startswith(("kafka.", "value"))) == sorted(OPTIONS)
    assert [name for name in WITHOUT_MEANING if f"`{name}`" not in rows] == ["path", "checkpointLocation"]
