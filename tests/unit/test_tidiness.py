"""Sizes stay small: the limits of the house style, counted with `ast`."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "penstock"
MODULES = sorted(SOURCE.rglob("*.py"))
MODULE_LINES_MAX = 400
FUNCTION_LINES_MAX = 50
PACKAGE_MODULES_MAX = 12

# Path below src/penstock -> why it may be larger.
LARGE_MODULES: dict[str, str] = {}
LARGE_PACKAGES = {
    "core/wire/kafka": "a table: one file per Kafka API",
    "gateways/kafka/handlers": "one handler per Kafka API",
}


def name_of(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


@pytest.mark.parametrize("module", MODULES, ids=name_of)
def test_modules_and_functions_stay_small(module: Path) -> None:
    source = module.read_text()
    functions = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]

    too_long = [f.name for f in functions if (f.end_lineno or 0) - f.lineno + 1 > FUNCTION_LINES_MAX]

    assert too_long == []
    assert name_of(module) in LARGE_MODULES or source.count("\n") <= MODULE_LINES_MAX


def test_packages_stay_small() -> None:
    sizes = {
        name_of(p.parent): len(list(p.parent.glob("*.py"))) - 1 for p in MODULES if p.name == "__init__.py"
    }

    assert [n for n, size in sizes.items() if size > PACKAGE_MODULES_MAX and n not in LARGE_PACKAGES] == []
    assert {*LARGE_MODULES, *LARGE_PACKAGES} <= {name_of(p) for p in MODULES} | set(sizes)
