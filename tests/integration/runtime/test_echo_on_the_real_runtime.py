"""The very classes that the simulator torments, over loopback, real files and the real sync helper."""

from pathlib import Path
from typing import Any

from penstock.runtime import Address
from penstock.storage.disk import PosixDisk
from tests.support.echo import FILE, DurableEcho, EchoClient, EchoHistory, Load, check_echo, read_entries

ANY_PORT = Address("127.0.0.1", 0)


def test_every_answered_request_is_in_the_file_once(bench: Any, tmp_path: Path) -> None:
    history = EchoHistory()
    server = DurableEcho(bench.node(1), PosixDisk(str(tmp_path)), ANY_PORT)
    finished: list[int] = []
    for node_id in (2, 3):
        runtime = bench.node(node_id)
        EchoClient(runtime, server.address, history, Load(300, 16), lambda n=node_id: finished.append(n))  # type: ignore[misc]

    bench.until(lambda: len(finished) == 2)
    stopped: list[bool] = []
    server.stop(lambda: stopped.append(True))
    bench.until(lambda: bool(stopped))

    stored, _ = read_entries((tmp_path / FILE).read_bytes())
    assert len(history.answered) == 600
    assert check_echo(history.sent, history.answered, stored) == []


def test_a_restarted_server_knows_what_it_has_answered(bench: Any, tmp_path: Path) -> None:
    history = EchoHistory()
    finished: list[bool] = []
    first = DurableEcho(bench.node(1), PosixDisk(str(tmp_path)), ANY_PORT)
    client = EchoClient(bench.node(2), first.address, history, Load(200, 4), lambda: finished.append(True))
    bench.until(lambda: len(history.answered) >= 20)

    # The first incarnation ends in the middle of the work, without notice to its client.
    bench.supervisors[0].close()
    DurableEcho(bench.node(3), PosixDisk(str(tmp_path)), first.address)
    bench.until(lambda: bool(finished))
    client.stop(lambda: None)

    stored, _ = read_entries((tmp_path / FILE).read_bytes())
    assert check_echo(history.sent, history.answered, stored) == []
    assert len(history.answered) == 200
