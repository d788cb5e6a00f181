"""The compiled build behaves as the Python it is made from, and nobody needs it."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
COMPILER = shutil.which((sysconfig.get_config_var("CC") or "cc").split()[0])


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of what the build needs, so that nothing compiled is left in the sources."""
    for name in ("pyproject.toml", "setup.py", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "README.md").write_text("the build wants one\n")
    leave = shutil.ignore_patterns("*.so", "__pycache__")
    shutil.copytree(ROOT / "src" / "penstock", tmp_path / "src" / "penstock", ignore=leave)
    return tmp_path


def run(directory: Path, *arguments: str, **environment: str) -> str:
    finished = subprocess.run(
        [sys.executable, *arguments],
        cwd=directory,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=240,
        check=False,
    )
    assert finished.returncode == 0, finished.stdout
    return finished.stdout


def is_native(directory: Path) -> str:
    program = (
        "import penstock.core.records as records, penstock.spark.reading.decoder as decoding;"
        "print(records.NATIVE, decoding.NATIVE)"
    )
    return run(ROOT, "-c", program, PYTHONPATH=str(directory / "src")).strip()


@pytest.mark.skipif(COMPILER is None, reason="there is no C compiler here")
def test_compiled_modules_pass_the_tests_of_the_python_ones(copy: Path) -> None:
    run(copy, "setup.py", "-q", "build_ext", "--inplace", PENSTOCK_NATIVE="1")

    tests = run(
        ROOT,
        *("-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "0"),
        *("tests/unit/core/records", "tests/unit/spark/reading/decoder"),
        PYTHONPATH=str(copy / "src"),
    )

    assert is_native(copy) == "True True"
    assert " passed" in tests


@pytest.mark.parametrize(
    ("compiler", "reason"),
    [("no-such-compiler", "there is no C compiler"), ("false", "the compiler failed")],
)
def test_without_a_working_compiler_the_build_says_so_and_stays_python(
    copy: Path, compiler: str, reason: str
) -> None:
    output = run(copy, "setup.py", "-q", "build_ext", "--inplace", PENSTOCK_NATIVE="1", CC=compiler)

    assert f"penstock: building without compiled modules: {reason}\n" in output
    assert list(copy.rglob("*.so")) == []
    assert is_native(copy) == "False False"


def test_nothing_is_compiled_unless_asked_for(copy: Path) -> None:
    output = run(copy, "setup.py", "-q", "build_ext", "--inplace", PENSTOCK_NATIVE="0")

    assert "compiled modules" not in output
    assert list(copy.rglob("*.so")) == []


def test_compiled_modules_in_the_sources_are_as_new_as_their_python() -> None:
    """They win over the Python beside them: a change would go unnoticed until `make native` is run."""
    compiled = (ROOT / "src" / "penstock").rglob("*.so")
    sources = {path: path.with_name(path.name.partition(".")[0] + ".py") for path in compiled}

    assert [
        str(path) for path, source in sources.items() if path.stat().st_mtime < source.stat().st_mtime
    ] == []
