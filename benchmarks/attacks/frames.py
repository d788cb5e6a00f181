"""Connections that are no use to anybody: frames that never end, ghosts, those that come and go."""

import contextlib
import struct

from benchmarks.attacks.attack import Attacker, AttackTable
from penstock.client.connection import BrokerConnection
from penstock.client.load import fetch_frame

MEBIBYTE = 1 << 20
frames = AttackTable("frames")
GHOSTS_AT_ONCE = 50
# The header of a Produce: of all requests it alone may be large.
_PRODUCE_HEADER = struct.pack(">hhi", 0, 9, 1)


def _announced(frame_bytes: int) -> bytes:
    return struct.pack(">i", frame_bytes) + _PRODUCE_HEADER


@frames.attack("announced-frames")
def announced_frames(attacker: Attacker) -> None:
    """200 connections that announce a frame of 100 MB and send 8 bytes of it."""
    held = attacker.sockets(200)
    for one in held:
        one.sendall(_announced(100 * MEBIBYTE))
    while not attacker.is_over:
        attacker.pause(0.5)
    for one in held:
        one.close()


@frames.attack("dripped-frames")
def dripped_frames(attacker: Attacker) -> None:
    """12 connections that announce 100 MB each and send 10 bytes a second."""
    held = attacker.sockets(12)
    for one in held:
        one.sendall(_announced(100 * MEBIBYTE))
    for _ in attacker.rounds():
        for one in list(held):
            try:
                one.sendall(b"\x00")
                attacker.counts["bytes"] += 1
            except OSError:
                attacker.counts["disconnected"] += 1
                held.remove(one)
                one.close()
                held += attacker.sockets(1)
                for again in held[-1:]:
                    again.sendall(_announced(100 * MEBIBYTE))
        attacker.pause(0.1)
    for one in held:
        one.close()


@frames.attack("ghosts")
def ghosts(attacker: Attacker) -> None:
    """10,000 connections that park a Fetch and reset in the same moment."""
    attacker.create_topic("ghosts")
    asking = BrokerConnection(attacker.address(0))
    versions = {**asking.versions, 1: 11}
    asking.close()
    frame = _parked_fetch(attacker, versions)
    for _ in range(10_000 // GHOSTS_AT_ONCE):
        if attacker.is_over:
            break
        opened = attacker.sockets(GHOSTS_AT_ONCE)
        for one in opened:
            with contextlib.suppress(OSError):
                one.sendall(frame)
        # The node takes the requests, and the resets come while it does.
        for one in opened:
            one.close()
        attacker.counts["ghosts"] += len(opened)


def _parked_fetch(attacker: Attacker, versions: dict[int, int]) -> bytes:
    connection = BrokerConnection(attacker.address(0), versions=versions)
    try:
        return bytes(fetch_frame(connection, "ghosts", 0, max_wait_ms=600_000))
    finally:
        connection.close()


@frames.attack("connection-churn", processes=2)
def connection_churn(attacker: Attacker) -> None:
    """Connections that are opened and closed without a word."""
    for _ in attacker.rounds():
        try:
            attacker.open().close()
            attacker.counts["connections"] += 1
        except OSError:
            attacker.counts["refused"] += 1
            attacker.pause()


@frames.attack("noise")
def noise(attacker: Attacker) -> None:
    """Connections that send bytes which are no frames."""
    words = (b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 64, struct.pack(">ihh", 4, 999, 0), b"\x00" * 4_096)
    for number in attacker.rounds():
        try:
            with attacker.open() as one:
                one.sendall(words[number % len(words)])
                one.settimeout(1)
                one.recv(1_024)
            attacker.counts["connections"] += 1
        except OSError:
            attacker.counts["disconnected"] += 1


@frames.attack("idle-connections")
def idle_connections(attacker: Attacker) -> None:
    """9,000 connections that say nothing."""
    held = attacker.sockets(9_000)
    while not attacker.is_over:
        attacker.pause(0.5)
    for one in held:
        one.close()
