"""The map, the glossary and the recipes name modules, classes and functions that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BASES = (ROOT / "src" / "penstock", ROOT)
# `a/b.py` and `a/b/`, as the pages write them: below the package, or (tests, docs) below the repository.
MODULE = re.compile(r"`([a-z_0-9]+(?:/[a-z_0-9]+)*/(?:[a-z_0-9]+\.py)?)`")
# `a/b.py` `Class.method`: the module, and where to look in it.
PLACE = re.compile(r"`([a-z_0-9/]+\.py)` `([A-Za-z_.]+)`")


def place_of(path: str) -> Path | None:
    return next((base / path for base in BASES if (base / path).exists()), None)


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "CONTRIBUTING.md", "docs/glossary.md"])
def test_every_module_that_a_page_names_exists(page: str) -> None:
    named = MODULE.findall((ROOT / page).read_text())

    missing = sorted({path for path in named if place_of(path) is None})

    assert named
    assert not missing, f"{page} names what is not there: {missing}"


def defines(module: Path, name: str) -> bool:
    source = module.read_text()
    return all(
        re.search(rf"(?:def|class) {part}\b|^{part}\b", source, re.MULTILINE) for part in name.split(".")
    )


def test_every_function_on_the_map_is_in_the_module_it_is_named_with() -> None:
    named = PLACE.findall((ROOT / "ARCHITECTURE.md").read_text())

    missing = [
        f"{path} {name}"
        for path, name in named
        if (module := place_of(path)) is None or not defines(module, name)
    ]

    assert named
    assert not missing
