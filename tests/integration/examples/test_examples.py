import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[3] / "examples"


def test_the_log_engine_example_reads_back_what_it_wrote(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "log_engine.py"), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "offsets 0 to 1, 0 bytes read at start",
        "0 b'en' b'hello'",
        "1 b'fr' b'bonjour'",
    ]
