import os
import re
import subprocess
import sys
from pathlib import Path

PLUGIN = ("-p", "no:penstock", "-p", "penstock.testing.pytest_plugin")
TESTS = """\
import os
import re
import pytest
from penstock.testing.brokers import Broker

seen = []

@pytest.mark.parametrize("number", [1, 2])
def test_topics_differ(penstock_broker: Broker, penstock_topic: str, number: int) -> None:
    assert penstock_topic not in seen
    seen.append(penstock_topic)
    assert len(set(seen)) == number

def data(started: Broker) -> str:
    return os.path.join(os.environ["PLACE"], os.listdir(os.environ["PLACE"])[0], "node-1", "logs")

@pytest.mark.penstock_topic(partitions=5)
def test_a_marker_says_what_the_topic_is_like(penstock_broker: Broker, penstock_topic: str) -> None:
    assert len(os.listdir(os.path.join(data(penstock_broker), penstock_topic))) == 5

def test_settings_come_from_the_ini_file(penstock_broker: Broker, penstock_topic: str) -> None:
    assert len(os.listdir(os.path.join(data(penstock_broker), penstock_topic))) == 3
"""


def run_pytest(directory: Path, tests: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    place = directory / "place"
    place.mkdir()
    (directory / "test_it.py").write_text(tests)
    (directory / "pytest.ini").write_text("[pytest]\npenstock_settings =\n    topics.partitions = 3\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *PLUGIN, *arguments]
    # Where temporary files go is where the broker's data lie.
    environment = {**os.environ, "TMPDIR": str(place), "PLACE": str(place)}
    return subprocess.run(
        command, cwd=directory, capture_output=True, text=True, env=environment, check=False
    )


def test_tests_share_a_broker_and_have_a_topic_each(tmp_path: Path) -> None:
    ended = run_pytest(tmp_path, TESTS, "--strict-markers", "-p", "no:randomly")

    assert ended.returncode == 0, ended.stdout
    assert "4 passed" in ended.stdout
    assert list((tmp_path / "place").iterdir()) == []


def test_a_setting_that_is_none_is_refused_in_a_line(tmp_path: Path) -> None:
    tests = "def test_it(penstock_broker): pass"

    for option, complaint in {
        "penstock_nodes=many": "penstock_nodes = many: expected a number",
        "penstock_in_process=perhaps": "penstock_in_process = perhaps: expected true or false",
    }.items():
        (directory := tmp_path / option).mkdir()
        ended = run_pytest(directory, tests, "-o", option)

        assert ended.returncode == 1
        assert complaint in ended.stdout


def test_the_plugin_imports_no_broker_until_a_test_asks_for_one(tmp_path: Path) -> None:
    tests = (
        "import sys\n"
        "def test_it():\n"
        "    assert 'penstock.testing.pytest_plugin' in sys.modules\n"
        "    loaded = [name for name in sys.modules if name.startswith('penstock')]\n"
        "    assert sorted(loaded) == ['penstock', 'penstock.testing', 'penstock.testing.pytest_plugin']\n"
    )

    ended = run_pytest(tmp_path, tests)

    assert ended.returncode == 0, ended.stdout


def test_modules_of_the_broker_are_imported_as_they_are(tmp_path: Path) -> None:
    tests = (
        "import penstock.core.model\n"
        "def test_it():\n"
        "    assert type(penstock.core.model.__loader__).__name__ == 'SourceFileLoader'\n"
        "    assert type(__loader__).__name__ == 'AssertionRewritingHook'\n"
    )

    ended = run_pytest(tmp_path, tests)

    assert ended.returncode == 0, ended.stdout


def test_the_examples_of_the_guide_run(tmp_path: Path) -> None:
    guide = Path(__file__).parents[3] / "docs/howto/test-with-a-broker.md"
    blocks = re.findall(r"```python\n(.*?)```", guide.read_text(), re.DOTALL)

    ended = run_pytest(tmp_path, "\n".join(blocks))

    assert ended.returncode == 0, ended.stdout
    assert "4 passed" in ended.stdout
