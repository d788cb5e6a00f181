"""REST publish: single messages and batches of 100, on keep-alive connections.

    python benchmarks/rest.py 127.0.0.1:8080 [seconds] [connections] [pid of the gateway]

The load generator writes prepared bytes to raw sockets and only looks for the end of each response, so that
it is not what is measured. It prints one JSON object per case. With the gateway's process id it says how
much processor time a message costs there, which other load on the machine does not change.
"""

import json
import os
import selectors
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path

BATCH = 100
VALUE = {"sensor": "a-17", "temperature": 21.5, "humidity": 40, "note": "x" * 40}


@dataclass
class Case:
    """One request, over and over."""

    name: str
    path: str
    body: bytes
    messages: int

    def request(self) -> bytes:
        head = (
            f"POST {self.path} HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(self.body)}\r\n\r\n"
        )
        return head.encode() + self.body


class Connection:
    """Sends the next request when the last response is complete."""

    def __init__(self, address: tuple[str, int], request: bytes) -> None:
        self.socket = socket.create_connection(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._request = request
        self._received = b""
        self.sent_at = 0.0

    def send(self) -> None:
        self.sent_at = time.perf_counter()
        self.socket.sendall(self._request)

    def has_response(self) -> bool:
        self._received += self.socket.recv(1 << 18)
        head, end, body = self._received.partition(b"\r\n\r\n")
        if not end:
            return False
        if not head.startswith(b"HTTP/1.1 20"):
            raise SystemExit(self._received.decode())
        length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n", 1)[0])
        if len(body) < length:
            return False
        self._received = b""
        return True


def cpu_seconds(pid: int) -> float:
    """Processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(
    address: tuple[str, int], case: Case, seconds: float, connections: int, pid: int
) -> dict[str, object]:
    cpu = cpu_seconds(pid) if pid else 0.0
    responses = 0
    selector = selectors.EpollSelector()
    opened = [Connection(address, case.request()) for _ in range(connections)]
    for connection in opened:
        selector.register(connection.socket, selectors.EVENT_READ, connection)
        connection.send()
    latencies: list[float] = []
    start = time.perf_counter()
    warm = start + 1
    until = warm + seconds
    while (now := time.perf_counter()) < until:
        for key, _ in selector.select(1):
            connection = key.data
            if connection.has_response():
                responses += 1
                if now >= warm:
                    latencies.append(time.perf_counter() - connection.sent_at)
                connection.send()
    for connection in opened:
        connection.socket.close()
    latencies.sort()
    used = cpu_seconds(pid) - cpu if pid else 0.0
    return {
        "case": case.name,
        "connections": connections,
        "requests_per_second": round(len(latencies) / seconds),
        "messages_per_second": round(len(latencies) * case.messages / seconds),
        "p50_ms": round(latencies[len(latencies) // 2] * 1_000, 2),
        **({"gateway_us_per_message": round(used * 1e6 / responses / case.messages, 1)} if pid else {}),
        "p99_ms": round(latencies[len(latencies) * 99 // 100] * 1_000, 2),
    }


def main() -> None:
    host, port = sys.argv[1].rsplit(":", 1)
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 5.0
    connections = int(sys.argv[3]) if len(sys.argv) > 3 else 32
    pid = int(sys.argv[4]) if len(sys.argv) > 4 else 0
    message = {"key": "device-17", "value": VALUE}
    cases = [
        Case("publish", "/v1/topics/bench-rest/publish", json.dumps(message).encode(), 1),
        Case(
            "batch of 100",
            "/v1/topics/bench-rest/batch",
            json.dumps({"messages": [message] * BATCH}).encode(),
            BATCH,
        ),
    ]
    for case in cases:
        print(json.dumps(measure((host, int(port)), case, seconds, connections, pid)), flush=True)


if __name__ == "__main__":
    main()
