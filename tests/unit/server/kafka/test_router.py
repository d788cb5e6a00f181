"""The table of handlers: announced by name, imported when they are needed."""

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.core.protocol.messages.registry import APIS
from penstock.server.kafka import router
from penstock.server.kafka.handlers import every_route
from penstock.server.kafka.router import Router

HEARTBEAT = APIS[12]
NO_FRAME = memoryview(b"")
HANDLER = """\
from penstock.core.protocol.messages.heartbeat import HeartbeatRequest
from penstock.server.kafka.router import routes


@routes.handles_frames(HeartbeatRequest)
def heartbeat(call, frame, position):
    note(call)


served_early = routes.by_key[12].serve is heartbeat


def note(call):
    call.served += 1
"""


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Router]:
    """A table of its own, and a module of a handler that can be imported."""
    (tmp_path / "made_up_heartbeat.py").write_text(HANDLER)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(router, "routes", Router())
    yield router.routes
    sys.modules.pop("made_up_heartbeat", None)


def test_a_handler_is_imported_with_the_first_request_of_its_api(table: Router) -> None:
    table.announce(HEARTBEAT, "made_up_heartbeat")
    call: Any = SimpleNamespace(served=0)

    assert "made_up_heartbeat" not in sys.modules
    table.by_key[12].serve(call, NO_FRAME, 0)
    table.by_key[12].serve(call, NO_FRAME, 0)

    assert call.served == 2
    assert table.by_key[12].serve is sys.modules["made_up_heartbeat"].heartbeat


def test_a_handler_serves_nobody_before_its_module_is_whole(table: Router) -> None:
    table.announce(HEARTBEAT, "made_up_heartbeat")

    table.load()

    assert not sys.modules["made_up_heartbeat"].served_early
    assert table.by_key[12].serve is sys.modules["made_up_heartbeat"].heartbeat


def test_what_is_announced_is_what_the_modules_register() -> None:
    table = every_route()
    announced = {route.api for route in table.all()}

    table.load()

    assert {route.api for route in table.all()} == announced
    assert not any(isinstance(route.serve, partial) for route in table.all())
