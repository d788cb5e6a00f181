import ast
import re
from pathlib import Path

import pytest

from penstock.cli.reference import pages

ROOT = Path(__file__).parents[3]
EVENT_NAME = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)+")


@pytest.mark.parametrize("name", ["settings.md", "metrics.md", "cli.md", "kafka-apis.md", "errors.md"])
def test_reference_pages_say_what_the_code_does(name: str) -> None:
    # To mend it: python -m penstock.cli.reference docs/reference
    assert (ROOT / "docs" / "reference" / name).read_text().splitlines() == pages()[name]


def test_log_events_have_fixed_dotted_names() -> None:
    calls = [
        node
        for module in (ROOT / "src").rglob("*.py")
        for node in ast.walk(ast.parse(module.read_text()))
        if isinstance(node, ast.Call)
        and re.fullmatch(r"log\.(debug|info|warning|error)", ast.unparse(node.func))
    ]

    misnamed = [
        ast.unparse(call)
        for call in calls
        if not (isinstance(call.args[0], ast.Constant) and EVENT_NAME.fullmatch(str(call.args[0].value)))
    ]

    assert misnamed == []
