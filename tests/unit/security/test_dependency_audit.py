"""The list of versions that must not be installed."""

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

TOOL = Path(__file__).parents[3] / "tools" / "dependency_audit.py"


def audit(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(TOOL), *arguments], capture_output=True, text=True, check=False, timeout=60
    )


def test_nothing_that_is_known_to_be_bad_is_installed() -> None:
    done = audit()

    assert done.returncode == 0, done.stdout


def test_a_version_of_the_list_is_found(tmp_path: Path) -> None:
    bad = tmp_path / "list.tsv"
    bad.write_text("# a list\nPyJWT\t>=1.0\tTEST-1\tall of them\nno-such-package\t>=0\tTEST-2\tnone\n")

    done = audit(str(bad))

    assert done.returncode == 1
    assert f"pyjwt {version('pyjwt')}: TEST-1: all of them" in done.stdout
    assert "TEST-2" not in done.stdout
