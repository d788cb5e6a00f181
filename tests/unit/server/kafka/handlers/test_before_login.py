"""What strangers may ask of a listener with SASL before they are somebody."""

import struct
from typing import TYPE_CHECKING

from penstock.core.model import SECOND
from penstock.core.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.server.kafka.authentication import REQUESTS_MAX
from penstock.server.kafka.listener import NEWCOMERS_MAX, Newcomers
from tests.unit.server.kafka.handlers.test_access import as_user, log_in, secured

if TYPE_CHECKING:
    from tests.unit.server.kafka.handlers.conftest import Stage

ASK = ApiVersionsRequest(client_software_name="x", client_software_version="1")


def test_a_frame_that_no_login_needs_is_not_received(stage_with: type["Stage"]) -> None:
    stage = secured(stage_with)
    stranger = stage.client()
    # The first bytes of a Produce of 50 MB.
    frame = bytearray(struct.pack(">ihhi", 50 << 20, 0, 9, 1) + bytes(100))

    for _ in stranger.feed(frame):
        pass

    assert stranger.tcp.is_closed
    assert stage.claimed_bytes == 0


def test_requests_before_a_login_are_counted(stage_with: type["Stage"]) -> None:
    stage = secured(stage_with)
    stranger = stage.client()
    for _ in range(REQUESTS_MAX):
        stranger.ask(ASK, ApiVersionsResponse, 3)

    stranger.send(ASK, 3)

    assert stranger.tcp.is_closed


def test_who_has_logged_in_is_not_counted(stage_with: type["Stage"]) -> None:
    client = as_user(secured(stage_with), "alice")

    for _ in range(2 * REQUESTS_MAX):
        client.ask(ASK, ApiVersionsResponse, 3)

    assert not client.tcp.is_closed


def test_a_client_that_does_not_log_in_is_closed(stage_with: type["Stage"]) -> None:
    stage = secured(stage_with)
    silent, served = stage.client(), stage.client()
    log_in(served, "alice")

    stage.run(40 * SECOND)

    assert silent.tcp.is_closed
    assert not served.tcp.is_closed


class Visitor:
    def __init__(self) -> None:
        self.is_open = True
        self.is_logged_in = False

    def close(self) -> None:
        self.is_open = False


def test_the_oldest_stranger_gives_way_and_nobody_who_has_logged_in() -> None:
    newcomers = Newcomers()
    visitors = [newcomers.add(Visitor()) for _ in range(NEWCOMERS_MAX)]
    visitors[0].is_logged_in = True

    newcomers.add(Visitor())
    newcomers.add(Visitor())

    assert [visitor.is_open for visitor in visitors[:3]] == [True, False, True]
    assert len(newcomers) == NEWCOMERS_MAX


class RecordedTimer:
    def __init__(self) -> None:
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


def test_no_timer_waits_for_a_stranger_who_has_gone() -> None:
    newcomers = Newcomers()
    timer = RecordedTimer()
    visitor = newcomers.add(Visitor(), timer)

    assert newcomers.remove(visitor)

    assert timer.is_cancelled
