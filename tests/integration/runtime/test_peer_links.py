"""Links between nodes over real sockets, and what strangers can do to them."""

import socket
import struct
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from penstock.core.model import NodeId
from penstock.runtime import Address, AddressUnavailable, CloseReason, NodeIdentity, peer_link
from penstock.runtime.loop import RuntimeOptions
from penstock.runtime.peer_handshake import Hello, HelloRefusal, read_greeting, write_hello
from penstock.runtime.peer_link import PeerOptions

ANY_PORT = Address("127.0.0.1", 0)
HASTY = RuntimeOptions(
    PeerOptions(
        frame_bytes_max=1 << 20,
        send_buffer_bytes_max=1 << 20,
        handshake_timeout_ms=50,
        connect_timeout_ms=50,
        idle_timeout_ms=200,
        links_max=3,
    )
)
CLUSTER = UUID(int=7)
Recorders = Callable[[], Any]


def framed(content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + content


def greeting(cluster: UUID = CLUSTER) -> bytes:
    return framed(write_hello(Hello(NodeIdentity(cluster, NodeId(99), UUID(int=1)))))


def stranger(address: Address, said: bytes = b"") -> socket.socket:
    """A connection of our own making, for saying things that a link never would."""
    connected = socket.create_connection(address, timeout=10)
    connected.sendall(said)
    connected.setblocking(False)
    return connected


def test_both_sides_learn_who_the_other_is(bench: Any, new_recorder: Recorders) -> None:
    called, calling = new_recorder(), new_recorder()
    listener = bench.node(1).transport.listen(ANY_PORT, called)

    bench.node(2).transport.connect(listener.address, calling)
    bench.until(lambda: called.peers and calling.peers)

    assert (called.peers[0].node_id, called.peers[0].directory_id) == (2, UUID(int=1002))
    assert calling.peers[0].node_id == 1


def test_frames_arrive_whole_and_in_order_whatever_their_size(bench: Any, new_recorder: Recorders) -> None:
    called, calling = new_recorder(), new_recorder()
    listener = bench.node(1).transport.listen(ANY_PORT, called)
    link = bench.node(2).transport.connect(listener.address, calling)
    bench.until(lambda: bool(calling.links))
    sizes = [1, 10, 65_536, 3, 700_000, 64 * 1024 - 4, 2, 5_000_000, 1]
    changing = bytearray(b"?" * 100_000)

    for number, size in enumerate(sizes):
        assert link.send(bytes([number]) * (size - 1), b"!")
    assert link.send(memoryview(changing))
    changing[:] = b"#" * len(changing)
    bench.until(lambda: len(called.frames) == len(sizes) + 1)

    expected = [bytes([number]) * (size - 1) + b"!" for number, size in enumerate(sizes)]
    assert called.frames == [*expected, b"?" * 100_000]


def test_nobody_listening_is_told_apart_from_silence(bench: Any, new_recorder: Recorders) -> None:
    refused, unanswered = new_recorder(), new_recorder()
    node = bench.node(1, HASTY)
    with socket.create_server(("127.0.0.1", 0), backlog=1) as mute:
        with socket.create_server(("127.0.0.1", 0)) as gone:
            nobody = Address(*gone.getsockname())

        node.transport.connect(nobody, refused)
        node.transport.connect(Address(*mute.getsockname()), unanswered)
        bench.until(lambda: refused.endings and unanswered.endings)

    assert refused.endings == [CloseReason.REFUSED]
    assert unanswered.endings == [CloseReason.UNREACHABLE]


@pytest.mark.parametrize(
    "nowhere", [Address("127.0.0.1", 70_000), Address("127.0.0.1", -1), Address("a\0b", 1)]
)
def test_what_cannot_be_an_address_is_unreachable(
    bench: Any, new_recorder: Recorders, nowhere: Address
) -> None:
    lost = new_recorder()

    bench.node(1).transport.connect(nowhere, lost)
    bench.until(lambda: lost.endings)

    assert lost.endings == [CloseReason.UNREACHABLE]


def test_a_name_is_resolved_and_an_unknown_one_is_unreachable(bench: Any, new_recorder: Recorders) -> None:
    called, calling, lost = new_recorder(), new_recorder(), new_recorder()
    listener = bench.node(1).transport.listen(ANY_PORT, called)

    node = bench.node(2)
    node.transport.connect(Address("localhost", listener.address.port), calling)
    node.transport.connect(Address("no-such-host.invalid", 1), lost)
    bench.until(lambda: calling.peers and lost.endings)

    assert lost.endings == [CloseReason.UNREACHABLE]


def test_a_node_of_another_cluster_is_turned_away(bench: Any, new_recorder: Recorders) -> None:
    called, calling = new_recorder(), new_recorder()
    listener = bench.node(1).transport.listen(ANY_PORT, called)

    bench.node(2, cluster=UUID(int=8)).transport.connect(listener.address, calling)
    bench.until(lambda: bool(calling.endings))

    assert calling.endings == [CloseReason.REJECTED]
    assert (called.peers, called.endings) == ([], [])


def test_the_admission_rule_sees_the_authentication_slot(bench: Any, new_recorder: Recorders) -> None:
    def admit(hello: Hello) -> HelloRefusal | None:
        return None if hello.authentication == b"secret" else HelloRefusal.AUTHENTICATION

    called, good, bad = new_recorder(), new_recorder(), new_recorder()
    listener = bench.node(1, RuntimeOptions(admit=admit)).transport.listen(ANY_PORT, called)
    knowing = RuntimeOptions(PeerOptions(authentication=b"secret"))

    bench.node(2, knowing).transport.connect(listener.address, good)
    bench.node(3).transport.connect(listener.address, bad)
    bench.until(lambda: good.peers and bad.endings)

    assert bad.endings == [CloseReason.REJECTED]
    assert [peer.node_id for peer in called.peers] == [2]


def test_a_taken_address_is_an_error_at_once(bench: Any, new_recorder: Recorders) -> None:
    node = bench.node(1)
    listener = node.transport.listen(ANY_PORT, new_recorder())

    with pytest.raises(AddressUnavailable, match="cannot listen on"):
        node.transport.listen(listener.address, new_recorder())


@pytest.mark.parametrize(
    "said",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        framed(b"x" * 1000),
        framed(b"PNSK\x01"),
        struct.pack(">I", 0xFFFFFFFF),
        greeting(UUID(int=666)),
        b"",
    ],
    ids=["http", "noise", "short", "huge", "other cluster", "nothing at all"],
)
def test_a_stranger_costs_its_own_connection_and_nothing_else(
    bench: Any, new_recorder: Recorders, said: bytes
) -> None:
    called, calling = new_recorder(), new_recorder()
    node = bench.node(1, HASTY)
    listener = node.transport.listen(ANY_PORT, called)

    with stranger(listener.address, said) as connected:
        bench.until(lambda: is_over(connected))
    bench.node(2, HASTY).transport.connect(listener.address, calling)
    bench.until(lambda: bool(calling.peers))

    assert [peer.node_id for peer in called.peers] == [2]


def is_over(connected: socket.socket) -> bool:
    try:
        while connected.recv(65536):
            pass
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True
    return True


def test_an_admitted_peer_that_breaks_the_framing_is_cut_off(bench: Any, new_recorder: Recorders) -> None:
    called = new_recorder()
    listener = bench.node(1, HASTY).transport.listen(ANY_PORT, called)

    with stranger(listener.address, greeting() + framed(b"good") + struct.pack(">I", 1 << 21)):
        bench.until(lambda: bool(called.endings))

    assert called.frames == [b"good"]
    assert called.endings == [CloseReason.MISBEHAVED]


def test_a_link_says_whether_a_part_of_a_frame_is_here(bench: Any, new_recorder: Recorders) -> None:
    called = new_recorder()
    listener = bench.node(1).transport.listen(ANY_PORT, called)
    whole = framed(b"a frame that comes in two parts")
    with stranger(listener.address, greeting()) as peer:
        bench.until(lambda: called.links)
        (link,) = called.links
        before = link.is_receiving

        peer.sendall(whole[:10])
        bench.until(lambda: link.is_receiving)
        peer.sendall(whole[10:])
        bench.until(lambda: called.frames)

        assert (before, link.is_receiving) == (False, False)


def test_one_turn_of_the_loop_reads_more_than_one_buffer_of_a_link(
    bench: Any, new_recorder: Recorders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_link, "_READ_BYTES", 1_000)
    monkeypatch.setattr(peer_link, "_TURN_BYTES_MAX", 4_000)
    called = new_recorder()
    listener = bench.node(1).transport.listen(ANY_PORT, called)
    with stranger(listener.address, greeting()) as peer:
        bench.until(lambda: called.links)
        (link,) = called.links
        peer.sendall(framed(b"x" * 990) * 10)

        # What the loop calls when the socket has something to read.
        link._readable()

        assert len(called.frames) == 4


def test_a_peer_that_falls_silent_is_given_up(bench: Any, new_recorder: Recorders) -> None:
    called = new_recorder()
    listener = bench.node(1, HASTY).transport.listen(ANY_PORT, called)

    with stranger(listener.address, greeting()):
        bench.until(lambda: bool(called.endings))

    assert called.endings == [CloseReason.SILENT]


def test_an_idle_link_between_nodes_stays_open(bench: Any, new_recorder: Recorders) -> None:
    called, calling = new_recorder(), new_recorder()
    node = bench.node(1, HASTY)
    listener = node.transport.listen(ANY_PORT, called)
    bench.node(2, HASTY).transport.connect(listener.address, calling)
    bench.until(lambda: called.peers and calling.peers)
    much_later: list[bool] = []

    node.timers.at(node.clock.now() + 5 * 200_000_000, lambda: much_later.append(True))
    bench.until(lambda: bool(much_later))

    assert (called.endings, calling.endings) == ([], [])


def test_a_peer_that_does_not_read_fills_a_bounded_buffer(bench: Any, new_recorder: Recorders) -> None:
    called = new_recorder()
    listener = bench.node(1, RuntimeOptions(PeerOptions(send_buffer_bytes_max=1 << 20))).transport.listen(
        ANY_PORT, called
    )
    with stranger(listener.address, greeting()) as connected:
        bench.until(lambda: bool(called.links))
        taken = 0

        while called.links[0].send(b"x" * 10_000):
            taken += 1
            assert taken < 10_000
            if taken % 50 == 0:
                bench.loop.call_soon(bench.loop.stop)
                bench.loop.run_forever()
        assert called.drains == 0
        bench.until(lambda: is_over(connected) or called.drains > 0)

    assert called.drains == 1


def test_a_paused_link_hands_over_nothing_until_it_is_resumed(bench: Any, new_recorder: Recorders) -> None:
    called, calling = new_recorder(), new_recorder()
    listener = bench.node(1).transport.listen(ANY_PORT, called)
    link = bench.node(2).transport.connect(listener.address, calling)
    bench.until(lambda: called.links and calling.links)

    called.links[0].pause()
    for number in range(100):
        link.send(b"%d" % number)
    calling.links[0].send(b"last")
    assert called.links[0].send(b"marker")
    bench.until(lambda: calling.frames == [b"marker"])
    held_back = list(called.frames)
    called.links[0].resume()
    bench.until(lambda: len(called.frames) == 101)

    assert held_back == []
    assert called.frames == [b"%d" % number for number in range(100)] + [b"last"]


def test_closing_tells_both_sides_later_and_once(bench: Any, new_recorder: Recorders) -> None:
    called, calling = new_recorder(), new_recorder()
    listener = bench.node(1).transport.listen(ANY_PORT, called)
    link = bench.node(2).transport.connect(listener.address, calling)
    bench.until(lambda: called.links and calling.links)

    link.send(b"goodbye")
    link.close()
    link.close()
    told_inside = list(calling.endings)
    bench.until(lambda: called.endings and calling.endings)

    assert told_inside == []
    assert (calling.endings, called.endings) == ([CloseReason.OURS], [CloseReason.ENDED])
    assert called.frames == [b"goodbye"]
    assert link.send(b"too late") is False


def test_more_callers_than_allowed_are_turned_away(bench: Any, new_recorder: Recorders) -> None:
    called = new_recorder()
    listener = bench.node(1, HASTY).transport.listen(ANY_PORT, called)
    admitted = [stranger(listener.address, greeting()) for _ in range(3)]
    bench.until(lambda: len(called.links) == 3)

    with stranger(listener.address, greeting()) as one_too_many:
        bench.until(lambda: is_over(one_too_many) or len(called.links) > 3)
    for connected in admitted:
        connected.close()

    assert len(called.links) == 3


def test_a_hello_on_the_wire_is_what_the_format_says() -> None:
    hello = Hello(NodeIdentity(UUID(int=7), NodeId(3), UUID(int=9)), b"slot")

    written = write_hello(hello)

    assert (
        written
        == bytes.fromhex(
            "504e534b 01 0001 00000000000000000000000000000007 00000003 00000000000000000000000000000009 0004"
        )
        + b"slot"
    )
    assert read_greeting(written + b"fields of a later version") == hello
