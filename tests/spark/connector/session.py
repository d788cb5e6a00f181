"""A session with Spark's own connector, in a process of its own: the JVM takes jars only when it starts."""

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
ANSWER_SECONDS = 180
STOP_SECONDS = 60

Row = dict[str, Any]
Options = dict[str, str]


class ConnectorSession:
    """Asks `serving`, and waits for the response."""

    def __init__(self, jars: list[Path], directory: Path) -> None:
        self._log = directory / "session.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "tests.spark.connector.session_process"),
                    *(",".join(map(str, jars)), str(directory)),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=ROOT,
            )

    def read(self, form: str, options: Options) -> list[Row]:
        """All rows, by partition and offset; binaries are base64, and what is null is left out."""
        return list(self._ask(ask="read", form=form, options=options))

    def write(self, form: str, count: int, columns: list[str], options: Options) -> None:
        """Write so many rows, with columns that are worked out from `id`."""
        self._ask(ask="write", form=form, count=count, columns=columns, options=options)

    def stream(self, forms: tuple[str, str], source: Options, sink: Options) -> list[Row]:
        """From one topic into another until all is read; returns what the query says of each batch."""
        return list(self._ask(ask="stream", forms=forms, source=source, sink=sink))

    def example(self, name: str, form: str, servers: str, directory: Path) -> Any:
        """What an example of the guide gives with a format."""
        return self._ask(ask="example", name=name, form=form, servers=servers, directory=str(directory))

    def close(self) -> None:
        try:
            # Without requests it stops by itself, and its JVM with it.
            self._process.communicate(timeout=STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()

    def _ask(self, **request: object) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        # A query that hangs would hold the test until somebody comes to look.
        watch = threading.Timer(ANSWER_SECONDS, self._process.kill)
        watch.start()
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        finally:
            watch.cancel()
        assert line, f"the session ended, or took {ANSWER_SECONDS} s: {self._last_words()}"
        answer = json.loads(line)
        assert "failed" not in answer, f"{request} failed: {answer['failed']}"
        return answer["answer"]

    def _last_words(self) -> str:
        return self._log.read_text(errors="replace")[-2_000:]
