"""The blocks of the how-to, one after the other as they stand there; address and patience are others."""

import re
from pathlib import Path
from typing import Any

import pytest

HOWTO = Path(__file__).parents[3] / "docs" / "howto" / "use-the-python-client.md"


def blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", HOWTO.read_text(), re.DOTALL)


def test_every_block_runs(bootstrap: str, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {"__name__": "howto"}
    for number, written in enumerate(blocks()):
        block = written.replace("127.0.0.1:9092", bootstrap)
        # On a busy machine a group may take longer to form than a reader would wait.
        block = block.replace("idle_seconds=2", "idle_seconds=6").replace("timeout=3", "timeout=6")
        code = compile(block, f"block {number} of {HOWTO.name}", "exec")
        exec(code, names)

    shown = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"orders/[01]/0", shown[0])
    assert shown[1] == "there is no setting sesion.timeout.ms: is it session.timeout.ms?"
    assert "3" in shown
    assert len([line for line in shown if line.startswith("handling orders/")]) == names["handled"] == 3
    assert "(3,)" in shown
