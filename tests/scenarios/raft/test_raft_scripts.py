"""Raft by example: each script tells one story, and what members do in it is written down."""

from pathlib import Path

import pytest

from tests.scenarios.raft.raft_script import replay

SCRIPTS = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_members_do_what_the_script_says(script: Path, rewrite: bool) -> None:
    written = script.read_text().splitlines()

    happened = replay(written)

    if rewrite:
        script.write_text("\n".join(happened) + "\n")
    else:
        assert happened == written


def test_there_are_scripts() -> None:
    assert len(SCRIPTS) >= 15
