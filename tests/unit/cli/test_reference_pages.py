import ast
import re
from pathlib import Path

import pytest

from penstock.cli.commands import PANELS, announced
from penstock.cli.node_process import FLAGS
from penstock.cli.reference import pages
from penstock.config import SETTINGS

ROOT = Path(__file__).parents[3]
EVENT_NAME = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)+")


@pytest.mark.parametrize(
    "name", ["settings.md", "metrics.md", "cli.md", "kafka-apis.md", "kafka-settings.md", "errors.md"]
)
def test_reference_pages_say_what_the_code_does(name: str) -> None:
    # To fix it: python -m penstock.cli.reference docs/reference
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


def test_every_option_of_up_has_the_default_of_its_setting() -> None:
    page = (ROOT / "docs" / "reference" / "cli.md").read_text()

    for flag, key in FLAGS.items():
        default = SETTINGS[key].show(SETTINGS[key].default) if SETTINGS[key].default else ""
        assert f"| `{flag}` | {f'`{default}`' if default else ''} | " in page


def test_every_command_has_a_line_in_the_overview() -> None:
    shown = [name for commands in PANELS.values() for name in commands]

    assert sorted(shown) == sorted(announced())
