import os
import re
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.skipif("PENSTOCK_SPARK_KILLS" not in os.environ, reason="CI runs the demo: make demo")
def test_the_demo_tells_the_whole_story_and_leaves_only_the_plot(tmp_path: Path) -> None:
    (tmp_path / "temporary").mkdir()
    (tmp_path / "here").mkdir()

    ended = subprocess.run(
        [sys.executable, "-m", "penstock.cli", "demo", "--messages", "20000"],
        env=os.environ | {"TMPDIR": str(tmp_path / "temporary"), "COLUMNS": "200"},
        cwd=tmp_path / "here",
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )

    assert ended.returncode == 0, ended.stderr
    assert re.search(r"ingested .* 20,001 records \(\d\.\d MB\), [\d,]+ of them late", ended.stdout)
    removed = re.search(r"duplicates removed .* (\d+) of (\d+) sent", ended.stdout)
    assert removed is not None
    assert removed[1] == removed[2] != "0"
    assert re.search(r"dead letters .* (\d+) of \1 malformed records", ended.stdout)
    outputs = "raw table, rollup table, rollup topic, dead letters"
    assert f"exact by count and content, without repeats: {outputs}" in ended.stdout
    assert re.search(r"lag .* records at most, 0 at the end", ended.stdout)
    assert [path.name for path in (tmp_path / "here").iterdir()] == ["penstock-demo.svg"]
    assert [path.name for path in (tmp_path / "temporary").iterdir()] == []
