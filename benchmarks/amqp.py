"""As much of AMQP 0-9-1 as a durable queue needs: publisher confirms, and deliveries with acknowledgements.

Over a raw socket, with bytes that are prepared as far as possible.
"""

import socket
import struct
from typing import NamedTuple

METHOD, HEADER, BODY, HEARTBEAT = 1, 2, 3, 8
FRAME_END = b"\xce"
BASIC = 60
CONNECTION_START, CONNECTION_START_OK = (10, 10), (10, 11)
CONNECTION_TUNE, CONNECTION_TUNE_OK = (10, 30), (10, 31)
CONNECTION_OPEN, CONNECTION_OPEN_OK = (10, 40), (10, 41)
CHANNEL_OPEN, CHANNEL_OPEN_OK = (20, 10), (20, 11)
QUEUE_DECLARE, QUEUE_DECLARE_OK = (50, 10), (50, 11)
BASIC_QOS, BASIC_QOS_OK = (BASIC, 10), (BASIC, 11)
BASIC_CONSUME, BASIC_CONSUME_OK = (BASIC, 20), (BASIC, 21)
BASIC_CANCEL, BASIC_CANCEL_OK = (BASIC, 30), (BASIC, 31)
BASIC_PUBLISH, BASIC_DELIVER, BASIC_ACK = (BASIC, 40), (BASIC, 60), (BASIC, 80)
CONFIRM_SELECT, CONFIRM_SELECT_OK = (85, 10), (85, 11)
DURABLE, PERSISTENT, HAS_DELIVERY_MODE = 2, 2, 1 << 12
NO_TABLE = bytes(4)


class Frame(NamedTuple):
    """A frame of a channel; a method's number is its class and itself."""

    kind: int
    payload: bytes

    @property
    def method(self) -> tuple[int, int]:
        class_id, method_id = struct.unpack_from(">HH", self.payload)
        return class_id, method_id


def _short(text: str) -> bytes:
    return bytes([len(text)]) + text.encode()


def _frame(kind: int, channel: int, payload: bytes) -> bytes:
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + FRAME_END


def _method(channel: int, number: tuple[int, int], arguments: bytes) -> bytes:
    return _frame(METHOD, channel, struct.pack(">HH", *number) + arguments)


class AmqpQueue:
    """A durable queue over one connection and one channel, with publisher confirms."""

    def __init__(self, address: tuple[str, int], queue: str) -> None:
        self._socket = socket.create_connection(address)
        self._input = self._socket.makefile("rb", buffering=1 << 20)
        self._queue = queue
        # All up to one tag are confirmed, and some beyond it.
        self._published = self._confirmed = 0
        self._beyond: set[int] = set()
        self._open()

    def publish(self, value: bytes, count: int) -> None:
        """Send so many persistent messages."""
        header = struct.pack(">HHQHB", BASIC, 0, len(value), HAS_DELIVERY_MODE, PERSISTENT)
        place = bytes(2) + _short("") + _short(self._queue) + b"\x00"
        one = _method(1, BASIC_PUBLISH, place) + _frame(HEADER, 1, header) + _frame(BODY, 1, value)
        self._socket.sendall(one * count)
        self._published += count

    def await_confirmed(self, unconfirmed_max: int) -> None:
        """Wait until at most so many messages are not confirmed."""
        while self._published - self._confirmed - len(self._beyond) > unconfirmed_max:
            frame = self._read()
            if frame.kind != METHOD or frame.method != BASIC_ACK:
                raise RuntimeError(f"a confirm was expected, not {frame}")
            tag, is_multiple = struct.unpack_from(">QB", frame.payload, 4)
            if is_multiple:
                self._confirmed = max(self._confirmed, tag)
                self._beyond = {each for each in self._beyond if each > tag}
            else:
                self._beyond.add(tag)
            while self._confirmed + 1 in self._beyond:
                self._confirmed += 1
                self._beyond.discard(self._confirmed)

    def consume(self, count: int, batch: int) -> None:
        """Receive so many messages, and acknowledge them a batch at a time."""
        self._call(BASIC_QOS, struct.pack(">IHB", 0, 4 * batch, 0), BASIC_QOS_OK)
        arguments = bytes(2) + _short(self._queue) + _short("worker") + b"\x00" + NO_TABLE
        self._call(BASIC_CONSUME, arguments, BASIC_CONSUME_OK)
        got = 0
        while got < count:
            frame = self._read()
            if frame.kind == METHOD and frame.method == BASIC_DELIVER:
                (tag,) = struct.unpack_from(">Q", frame.payload, 5 + frame.payload[4])
                got += 1
                if got % batch == 0 or got == count:
                    self._socket.sendall(_method(1, BASIC_ACK, struct.pack(">QB", tag, 1)))
        # The body of the last one is skipped; the reply says that the acknowledgements were read.
        self._call(BASIC_CANCEL, _short("worker") + b"\x00", BASIC_CANCEL_OK)

    def _open(self) -> None:
        self._socket.sendall(b"AMQP\x00\x00\x09\x01")
        self._expect(CONNECTION_START)
        secret = b"\x00guest\x00guest"
        answer = NO_TABLE + _short("PLAIN") + struct.pack(">I", len(secret)) + secret + _short("en_US")
        self._socket.sendall(_method(0, CONNECTION_START_OK, answer))
        frame_max = struct.unpack_from(">I", self._expect(CONNECTION_TUNE).payload, 6)[0]
        self._socket.sendall(_method(0, CONNECTION_TUNE_OK, struct.pack(">HIH", 16, frame_max, 0)))
        self._socket.sendall(_method(0, CONNECTION_OPEN, _short("/") + _short("") + b"\x00"))
        self._expect(CONNECTION_OPEN_OK)
        self._call(CHANNEL_OPEN, _short(""), CHANNEL_OPEN_OK)
        declared = bytes(2) + _short(self._queue) + bytes([DURABLE]) + NO_TABLE
        self._call(QUEUE_DECLARE, declared, QUEUE_DECLARE_OK)
        self._call(CONFIRM_SELECT, b"\x00", CONFIRM_SELECT_OK)

    def _call(self, number: tuple[int, int], arguments: bytes, answer: tuple[int, int]) -> None:
        self._socket.sendall(_method(1, number, arguments))
        self._expect(answer)

    def _expect(self, number: tuple[int, int]) -> Frame:
        while True:
            frame = self._read()
            if frame.kind == METHOD and frame.method == number:
                return frame
            if frame.kind == METHOD and frame.method != BASIC_DELIVER:
                raise RuntimeError(f"{number} was expected, not {frame}")

    def _read(self) -> Frame:
        while True:
            head = self._input.read(7)
            if len(head) < 7:
                raise RuntimeError("the server has closed the connection")
            kind, _channel, size = struct.unpack(">BHI", head)
            payload = self._input.read(size + 1)[:-1]
            if kind != HEARTBEAT:
                return Frame(kind, payload)
