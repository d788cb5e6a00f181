import socket
import socketserver

import pytest

from penstock.spark.run.session import silence_disconnects


@pytest.mark.parametrize("error", [EOFError(), ConnectionResetError()])
def test_a_client_that_leaves_in_the_middle_prints_nothing(
    error: Exception, capfd: pytest.CaptureFixture[str]
) -> None:
    server = socketserver.BaseServer(("127.0.0.1", 0), socketserver.BaseRequestHandler)
    silence_disconnects(server)

    fail_with(error, server)

    assert capfd.readouterr().err == ""


def test_any_other_error_is_still_printed(capfd: pytest.CaptureFixture[str]) -> None:
    server = socketserver.BaseServer(("127.0.0.1", 0), socketserver.BaseRequestHandler)
    silence_disconnects(server)

    fail_with(ValueError("a wrong token"), server)

    assert "a wrong token" in capfd.readouterr().err


def fail_with(error: Exception, server: socketserver.BaseServer) -> None:
    """What a server does around a handler that raises."""
    with socket.socket() as request:
        try:
            raise error
        except Exception:
            server.handle_error(request, ("127.0.0.1", 1))
