"""Simulated TCP: bytes in order or not at all, in pieces that know nothing of frames; and late ones."""

import pytest

from penstock.core.model import MILLISECOND, SECOND
from penstock.runtime import Address, AddressUnavailable, Callback, Runtime
from penstock.runtime.tcp import TcpConnection
from penstock.sim import World
from penstock.sim.tcp import WINDOWS, SimulatedTcp, SimulatedTcpListener
from penstock.storage.disk import Disk, File

ADDRESS = Address("node", 9092)


class Handler:
    """The node's side of one connection: keeps what it gets, and sends it back if it is to."""

    def __init__(self, pipe: TcpConnection, *, echoes: bool) -> None:
        self.tcp = pipe
        self.pieces: list[bytes] = []
        self.drains = 0
        self.held_bytes = 0
        self.is_closed = False
        self.has_something_left = False
        self._echoes = echoes
        self._buffer = memoryview(bytearray(64))
        pipe.account(self._moved)

    def _moved(self, change: int) -> None:
        self.held_bytes += change

    @property
    def content(self) -> bytes:
        return b"".join(self.pieces)

    def get_buffer(self) -> memoryview:
        return self._buffer

    def buffer_updated(self, count: int) -> None:
        self.pieces.append(bytes(self._buffer[:count]))
        if self._echoes:
            self.tcp.write([self.pieces[-1]])

    def drained(self) -> None:
        self.drains += 1

    def eof_received(self) -> bool:
        return self.has_something_left

    def closed(self) -> None:
        assert not self.is_closed
        self.is_closed = True


class Client:
    """The client's side of one connection."""

    def __init__(self, tcp: SimulatedTcp) -> None:
        self.said = b""
        self.content = b""
        self.is_closed = False
        self.socket = tcp.connect("client", ADDRESS, self)

    def written(self, content: bytes) -> None:
        self.said += content

    def received(self, content: bytes) -> None:
        self.content += content

    def closed(self) -> None:
        assert not self.is_closed
        self.is_closed = True


class Span:
    """A range of a file."""

    position = 0

    def __init__(self, file: File, length: int) -> None:
        self._file = file
        self.length = length

    def fileno(self) -> int:
        raise AssertionError("a simulated connection reads")

    def read(self) -> bytes:
        return self._file.pread(self.position, self.length)


class Stage:
    """A node that listens, and a client's host."""

    def __init__(self, seed: int = 1, *, echoes: bool = True) -> None:
        self.world = World(seed)
        self.tcp = SimulatedTcp(self.world.network)
        self.node = self.world.add("node", self._program)
        self.handlers: list[Handler] = []
        self.listener: SimulatedTcpListener
        self.disk: Disk
        self._echoes = echoes
        self.node.start()

    def _program(self, runtime: Runtime, disk: Disk) -> "Stage":
        assert self.node.incarnation is not None
        self.disk = disk
        self.listener = self.tcp.listen(self.node.incarnation, ADDRESS, self._welcome)
        return self

    def _welcome(self, pipe: TcpConnection) -> Handler:
        self.handlers.append(Handler(pipe, echoes=self._echoes))
        return self.handlers[-1]

    def stop(self, done: Callback) -> None:
        done()

    def connect(self) -> Client:
        return Client(self.tcp)

    def connected(self) -> tuple[Client, Handler]:
        """A connection that both ends know."""
        client = self.connect()
        client.socket.send(b"hello")
        self.run_ms(100)
        return client, self.handlers[-1]

    def run_ms(self, milliseconds: int) -> None:
        self.world.run(milliseconds * MILLISECOND)


def test_bytes_keep_their_order_in_both_directions() -> None:
    stage = Stage()
    client = stage.connect()
    frames = [b"frame %d;" % number for number in range(200)]

    for frame in frames:
        client.socket.send(frame)
        stage.run_ms(1)
    stage.run_ms(1_000)

    (handler,) = stage.handlers
    assert handler.content == b"".join(frames)
    assert client.content == client.said == b"".join(frames)


def test_frames_arrive_in_pieces_and_several_at_once() -> None:
    stage = Stage()
    client = stage.connect()
    frames = [b"frame %03d;" % number for number in range(300)]

    for frame in frames:
        client.socket.send(frame)
        stage.run_ms(1)
    stage.run_ms(1_000)

    sizes = [len(piece) for piece in stage.handlers[0].pieces]
    assert min(sizes) < len(frames[0]) < max(sizes)


def test_what_meets_a_short_cut_arrives_late_and_in_order() -> None:
    stage = Stage()
    client = stage.connect()
    stage.world.network.cut("client", "node")
    client.socket.send(b"1")
    stage.run_ms(100)
    stage.world.network.heal("client", "node")
    client.socket.send(b"2")
    stage.run_ms(10)
    assert stage.handlers == []

    stage.run_ms(1_000)

    assert stage.handlers[0].content == b"12"


def test_a_client_that_has_hung_up_does_not_stop_what_it_sent() -> None:
    stage = Stage()
    client = stage.connect()
    stage.world.network.cut("client", "node")
    client.socket.send(b"1")
    stage.run_ms(100)

    client.socket.close()
    stage.world.network.heal("client", "node")
    stage.run_ms(1_000)

    (handler,) = stage.handlers
    assert handler.content == b"1"
    assert handler.is_closed
    assert client.content == b""


def test_a_long_cut_loses_what_was_sent_into_it() -> None:
    stage = Stage()
    client = stage.connect()
    stage.world.network.cut("client", "node")
    client.socket.send(b"1")
    stage.run_ms(10_000)

    stage.world.network.heal("client", "node")
    stage.run_ms(10_000)

    assert stage.handlers == []


def test_the_death_of_the_process_is_told_at_once() -> None:
    stage = Stage()
    client, _ = stage.connected()

    stage.node.kill()
    stage.run_ms(100)

    assert client.is_closed


def test_a_power_cut_is_silent() -> None:
    stage = Stage()
    client, _ = stage.connected()

    stage.node.cut_power()
    client.socket.send(b"more")
    stage.run_ms(1_000)

    assert not client.is_closed


def test_a_connection_does_not_survive_into_the_next_incarnation() -> None:
    stage = Stage()
    client, handler = stage.connected()
    stage.node.cut_power()
    stage.node.start()

    client.socket.send(b"more")
    stage.run_ms(1_000)

    assert stage.handlers == [handler]
    assert handler.content == b"hello"
    assert client.is_closed


@pytest.mark.parametrize("is_dark", [True, False])
def test_what_follows_bytes_that_nobody_took_is_no_new_connection(is_dark: bool) -> None:
    stage = Stage()
    if is_dark:
        stage.node.cut_power()
    else:
        stage.node.kill()
    client = stage.connect()
    client.socket.send(b"first half,")
    stage.run_ms(100)
    stage.node.start()

    client.socket.send(b" second half")
    stage.run_ms(100)

    assert stage.handlers == []
    assert client.is_closed


def test_a_paused_handler_is_given_nothing_and_nothing_is_lost() -> None:
    stage = Stage()
    client, handler = stage.connected()
    handler.tcp.pause()
    client.socket.send(b" and more")
    stage.run_ms(100)
    assert handler.content == b"hello"

    handler.tcp.resume()
    stage.run_ms(1)

    assert handler.content == b"hello and more"


def test_what_the_other_end_has_no_room_for_stays_pending_and_is_accounted_for() -> None:
    stage = Stage(echoes=False)
    client, handler = stage.connected()
    stage.world.network.cut("node", "client")

    handler.tcp.write([b"x" * 1_000_000, b"the end"])
    stage.run_ms(100)

    assert handler.tcp.sent_bytes in WINDOWS
    assert handler.tcp.pending_bytes == 1_000_007 - handler.tcp.sent_bytes
    assert handler.held_bytes == handler.tcp.held_bytes == handler.tcp.pending_bytes
    assert handler.drains == 0
    stage.world.network.heal_all()
    stage.run_ms(60_000)
    assert client.content == b"x" * 1_000_000 + b"the end"
    assert (handler.drains, handler.held_bytes, handler.tcp.pending_bytes) == (1, 0, 0)


def test_a_span_of_a_file_is_read_and_is_not_in_memory() -> None:
    stage = Stage(echoes=False)
    client, handler = stage.connected()
    file = stage.disk.open("records", create=True)
    file.append(b"r" * 200_000)

    handler.tcp.write([b"<", Span(file, 200_000), b">"])
    assert handler.tcp.pending_bytes > 100_000
    assert handler.held_bytes == 1
    stage.run_ms(60_000)

    assert client.content == b"<" + b"r" * 200_000 + b">"


def test_a_file_that_is_truncated_under_a_span_ends_the_connection() -> None:
    stage = Stage(echoes=False)
    client, handler = stage.connected()
    file = stage.disk.open("records", create=True)
    file.append(b"r" * 200_000)
    handler.tcp.write([Span(file, 200_000)])

    file.truncate(70_000)
    stage.run_ms(1_000)

    assert handler.is_closed
    assert client.is_closed
    assert len(client.content) < 200_000


def test_a_client_that_closes_is_noticed_behind_everything_it_sent() -> None:
    stage = Stage()
    client, handler = stage.connected()

    client.socket.send(b", and good bye")
    client.socket.close()
    stage.run_ms(100)

    assert handler.content == b"hello, and good bye"
    assert handler.is_closed
    assert not client.is_closed, "who closes a socket hears nothing from it"


def test_a_listener_that_closes_takes_its_connections_along() -> None:
    stage = Stage()
    client, handler = stage.connected()

    stage.listener.close()
    late = stage.connect()
    late.socket.send(b"anybody there?")
    stage.run_ms(100)

    assert handler.is_closed
    assert client.is_closed
    assert late.is_closed
    assert stage.handlers == [handler]


def test_a_listener_that_stops_accepting_leaves_its_connections_alone() -> None:
    stage = Stage()
    client, handler = stage.connected()

    stage.listener.stop_accepting()
    client.socket.send(b" again")
    late = stage.connect()
    late.socket.send(b"anybody there?")
    stage.run_ms(100)

    assert handler.content == b"hello again"
    assert late.is_closed


def test_an_address_is_listened_on_once_and_only_by_its_own_machine() -> None:
    stage = Stage()
    assert stage.node.incarnation is not None

    with pytest.raises(AddressUnavailable):
        stage.tcp.listen(stage.node.incarnation, ADDRESS, stage._welcome)
    with pytest.raises(AddressUnavailable):
        stage.tcp.listen(stage.node.incarnation, Address("elsewhere", 9092), stage._welcome)


def test_a_seed_repeats_its_pieces() -> None:
    def pieces(seed: int) -> list[bytes]:
        stage = Stage(seed)
        client = stage.connect()
        for number in range(100):
            client.socket.send(b"frame %d;" % number)
        stage.world.run(SECOND)
        return stage.handlers[0].pieces

    assert pieces(3) == pieces(3)
    assert pieces(3) != pieces(4)


def test_a_client_that_leaves_while_reads_are_paused_is_seen_to_leave() -> None:
    stage = Stage()
    client, handler = stage.connected()
    handler.tcp.pause()

    client.socket.close()
    stage.run_ms(1_000)

    assert handler.is_closed


def test_what_is_left_to_serve_after_a_client_has_left_gets_some_time() -> None:
    stage = Stage()
    client, handler = stage.connected()
    handler.tcp.pause()
    handler.has_something_left = True

    client.socket.close()
    stage.run_ms(1_000)
    closed_early = handler.is_closed
    stage.run_ms(20_000)

    assert (closed_early, handler.is_closed) == (False, True)
