"""The map and the glossary name modules that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "penstock"
# `a/b.py` and `a/b/`, as the pages write them: below the package, or (tests, docs) below the repository.
MODULE = re.compile(r"`([a-z_0-9]+(?:/[a-z_0-9]+)*/(?:[a-z_0-9]+\.py)?)`")


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "docs/glossary.md"])
def test_every_module_that_a_page_names_exists(page: str) -> None:
    named = MODULE.findall((ROOT / page).read_text())

    missing = sorted({path for path in named if not any((base / path).exists() for base in (PACKAGE, ROOT))})

    assert named
    assert not missing, f"{page} names what is not there: {missing}"
